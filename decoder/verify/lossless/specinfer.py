"""specinfer: the sampled tokens are tried in random order; each token is tried against the residual after all refusals
so far.

Multi-step speculative sampling of Miao et al. 2024; Thomas et al. 2026, algorithms 4, 9 and 14. After any number of
refusals, the residual is (p - removed q)+ / S. So two scalars are enough: each refusal adds S to `removed`, and then S
becomes the new sum of (p - removed q)+.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from decoder.verify.lossless.rows import Row, positive, ratio, residual
from decoder.verify.lossless.top_down import Solver


def refused(target_probs: Row, draft_probs: Row, removed: float, total: float) -> tuple[float, float, Row]:
    """After one more refusal: `removed`, the sum S of (p - removed q)+, and the residual distribution."""
    removed += total
    left = positive(target_probs - removed * draft_probs)
    return removed, float(left.sum()), residual(target_probs, draft_probs, removed)


def residuals(target_probs: Row, draft_probs: Row, draws: int) -> list[Row]:
    """Residual distributions after 0, 1, ..., `draws` refusals."""
    rows, removed, total = [target_probs], 0.0, 1.0
    for _ in range(draws):
        removed, total, residual_row = refused(target_probs, draft_probs, removed, total)
        rows.append(residual_row)
    return rows


def acceptance_rate(target_probs: Row, draft_probs: Row, draws: int) -> float:
    none, missed = 1.0, np.ones_like(draft_probs)
    *residual_rows, last = residuals(target_probs, draft_probs, draws)
    for residual_row in residual_rows:
        refusal = positive(draft_probs - residual_row).sum()
        if refusal <= 0:
            return 1.0
        none *= refusal
        missed *= 1 - positive(draft_probs - residual_row) / refusal
    return float(1 - none + none * (last * (1 - missed)).sum())


def branching(target_probs: Row, draft_probs: Row, drawn: Sequence[int]) -> dict[int, float]:
    """Recursive over the subsets of the sampled tokens, of which there are at most 2^k."""
    residual_rows, distinct = residuals(target_probs, draft_probs, len(drawn)), sorted(set(drawn))

    @cache
    def probabilities(pool: tuple[int, ...]) -> Row:
        residual_row = residual_rows[len(drawn) - len(pool)]
        if not pool:
            return residual_row[distinct]
        picked = np.zeros(len(distinct))
        for place, token in enumerate(pool):
            accepted = ratio(residual_row[token], draft_probs[token])
            picked[distinct.index(token)] += accepted
            picked += (1 - accepted) * probabilities(pool[:place] + pool[place + 1 :])
        return picked / len(pool)

    return dict(zip(distinct, probabilities(tuple(sorted(drawn))).tolist(), strict=True))


SPECINFER = Solver(acceptance_rate, branching)

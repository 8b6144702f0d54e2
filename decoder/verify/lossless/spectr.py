"""spectr: the sampled tokens are tried in order, each accepted with probability min(1, p / (rho q)); if all tokens are
refused, the next token comes from a residual. The division factor rho compensates for the k chances of a token to be
sampled. This is k-sequential selection of Sun et al. 2023 (SpecTr); Thomas et al. 2026, algorithms 3, 8 and 13. k is
the number of sampled tokens, duplicates included.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decoder.verify.lossless.rows import Row, normalised, positive, ratio
from decoder.verify.lossless.top_down import Solver

STEPS = 40
"""Bisection steps on [1, k] for rho; fewer steps would lower the acceptance rate, but stay lossless."""


@dataclass(frozen=True)
class Division:
    """Acceptance rule for k sampled tokens, from one pair of rows."""

    factor: float
    """Division factor rho."""
    single: float
    """Probability beta that one sampled token is accepted."""
    any: float
    """Probability that any of the k sampled tokens is accepted."""
    residual: Row
    """Distribution of the token if no sampled token is accepted."""

    def probability(self, target_prob: float, draft_prob: float) -> float:
        return ratio(target_prob, self.factor * draft_prob)


def divide(target_probs: Row, draft_probs: Row, draws: int) -> Division:
    factor = division_factor(target_probs, draft_probs, draws)
    overlap = np.minimum(target_probs / factor, draft_probs)
    single = min(1.0, float(overlap.sum()))
    any_ = 1 - (1 - single) ** draws
    gamma = any_ / single if single > 0 else float(draws)
    return Division(factor, single, any_, normalised(positive(target_probs - gamma * overlap), target_probs))


def division_factor(target_probs: Row, draft_probs: Row, draws: int) -> float:
    """Root rho of 1 - (1 - beta)^k = rho beta on [1, k], with beta = sum min(p / rho, q); rounded up, since the
    residual has no negative entries at or above the root.
    """
    low, high = 1.0, float(draws)
    for _ in range(STEPS if draws > 1 else 0):
        middle = (low + high) / 2
        single = min(1.0, float(np.minimum(target_probs / middle, draft_probs).sum()))
        if 1 - (1 - single) ** draws <= middle * single:
            high = middle
        else:
            low = middle
    return high


def acceptance_rate(target_probs: Row, draft_probs: Row, draws: int) -> float:
    division = divide(target_probs, draft_probs, draws)
    if division.single >= 1:
        return 1.0
    refused = positive(draft_probs - target_probs / division.factor) / (1 - division.single)
    among_refused = (division.residual * (1 - (1 - np.minimum(refused, 1.0)) ** draws)).sum()
    return float(division.any + (1 - division.any) * among_refused)


def branching(target_probs: Row, draft_probs: Row, drawn: Sequence[int]) -> dict[int, float]:
    division = divide(target_probs, draft_probs, len(drawn))
    probabilities, left = dict.fromkeys(drawn, 0.0), 1.0
    for token in drawn:
        accepted = division.probability(target_probs[token], draft_probs[token])
        probabilities[token] += left * accepted
        left *= 1 - accepted
    return {token: probability + left * float(division.residual[token]) for token, probability in probabilities.items()}


SPECTR = Solver(acceptance_rate, branching)

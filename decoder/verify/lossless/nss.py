"""nss: the token is sampled from the target, and a drafted token is accepted if it equals the sampled token.

The choice of the token depends neither on the draft's rows nor on the drafted tokens. So `nss` is lossless on any tree,
unlike the other verifiers of this package; on deterministic trees it is optimal. Naive speculative sampling of Miao et
al. 2024 (SpecInfer); Thomas et al. 2026, algorithms 1, 6 and 11.
"""

from collections.abc import Sequence

from decoder.verify.lossless.rows import Row
from decoder.verify.lossless.top_down import Solver


def acceptance_rate(target_probs: Row, draft_probs: Row, draws: int) -> float:
    return float((target_probs * (1 - (1 - draft_probs) ** draws)).sum())


def branching(target_probs: Row, draft_probs: Row, drawn: Sequence[int]) -> dict[int, float]:
    del draft_probs
    return {token: float(target_probs[token]) for token in drawn}


NSS = Solver(acceptance_rate, branching)

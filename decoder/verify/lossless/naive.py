"""naive: the first sampled token is accepted with probability min(1, p / q); otherwise the token comes from the
residual (p - q)+.

On one path this is speculative sampling as first published (Leviathan et al. 2023, Chen et al. 2023). On a tree, the
token from the residual may equal another sampled token; the walk then continues from the node of that token
("NaiveTree"); Thomas et al. 2026, algorithms 2, 7 and 12.
"""

from collections.abc import Sequence

import numpy as np

from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Row, positive, ratio, residual
from decoder.verify.lossless.top_down import Solver


def solve(target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator) -> int:
    """Tries only the first sampled token."""
    first = drawn[0]
    if generator.bernoulli(ratio(target_probs[first], draft_probs[first])):
        return first
    return generator.choice(residual(target_probs, draft_probs))


def token_law(target_probs: Row, draft_probs: Row, first: int) -> Row:
    """Distribution of the token that `solve` chooses, given the first sampled token."""
    accepted = ratio(target_probs[first], draft_probs[first])
    law = (1 - accepted) * residual(target_probs, draft_probs)
    law[first] += accepted
    return law


def acceptance_rate(target_probs: Row, draft_probs: Row, draws: int) -> float:
    any_later_draw = 1 - (1 - draft_probs) ** (draws - 1)
    return float((np.minimum(target_probs, draft_probs) + positive(target_probs - draft_probs) * any_later_draw).sum())


def branching(target_probs: Row, draft_probs: Row, drawn: Sequence[int]) -> dict[int, float]:
    law = token_law(target_probs, draft_probs, drawn[0])
    return {token: float(law[token]) for token in drawn}


NAIVE = Solver(acceptance_rate, branching)

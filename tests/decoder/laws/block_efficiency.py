"""Tokens per round: the closed form's expectation for each sampled tree, compared with the committed tokens.

Given its tree, a round commits the expected number of tokens on average, independent of earlier rounds. So the sum of
the differences, divided by the root of the sum of their squares, is approximately standard normal.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

from scipy.stats import norm
from torch import Tensor

from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.top_down import Accepted
from decoder.verify.lossless.verifiers import VERIFIERS


@dataclass(frozen=True)
class Efficiency:
    """Number of rounds, and their tokens compared with the expectation."""

    rounds: int
    expected: float
    """Mean of the expected tokens per round."""
    realised: float
    z: float

    @property
    def chance(self) -> float:
        """P-value: probability of a difference of at least this size."""
        return float(2 * norm.sf(abs(self.z)))


def efficiency(counts: Mapping[str, float]) -> Efficiency:
    """Result of the sums of `recorded` over at least one round."""
    rounds, expected, realised = (counts[name] for name in ("rounds", "expected", "realised"))
    return Efficiency(
        int(rounds), expected / rounds, realised / rounds, (realised - expected) / math.sqrt(counts["squares"])
    )


@contextmanager
def recorded(name: str) -> Iterator[Counter[str]]:
    """Sums over the rounds that a verifier verifies within the context."""
    right = VERIFIERS[name]
    sums: Counter[str] = Counter()

    def on_device(tree: DrawnTree, target_probs: Tensor, draft_probs: Tensor, generator: RandomGenerator) -> Accepted:
        rows = target_probs.double().numpy(), draft_probs.double().numpy()
        expected = sum(right.reach(tree, *rows))
        path, last = right.on_device(tree, target_probs, draft_probs, generator)
        realised = len(path) + 1
        added = {"rounds": 1, "expected": expected, "realised": realised, "squares": (realised - expected) ** 2}
        for key, value in added.items():
            sums[key] += value  # type: ignore[assignment]
        return path, last

    with patch.dict(VERIFIERS, {name: replace(right, on_device=on_device)}):
        yield sums

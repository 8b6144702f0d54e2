"""Random numbers for drafting and verification. `RandomGenerator` is a protocol, so that a test can enumerate all
outcomes.
"""

from typing import Protocol

import numpy as np

from decoder.verify.lossless.rows import Row, require_numbers

_WORD = (1 << 64) - 1


class RandomGenerator(Protocol):
    """Source of independent random numbers."""

    def bernoulli(self, probability: float) -> bool:
        """Returns True with this probability, which is in [0, 1]: never True for 0, always True for 1."""

    def choice(self, weights: Row) -> int:
        """A random index, with a probability proportional to its weight; never an index of weight 0. `weights` has
        shape (V,).
        """

    def integers(self, count: int) -> int:
        """A uniform random integer from 0 to count - 1."""


class PhiloxGenerator:
    """Counter-based random numbers (Philox): seed and stream number determine the sequence, which is the same on every
    machine.

    Drafting and verification need different streams: a verifier that shares random numbers with the draft is biased.
    """

    def __init__(self, seed: int, stream: int = 0) -> None:
        key = np.array([seed & _WORD, stream & _WORD], dtype=np.uint64)
        self._generator = np.random.Generator(np.random.Philox(key=key))

    def bernoulli(self, probability: float) -> bool:
        """See `RandomGenerator`.

        Raises:
            ModelError: The probability is NaN.
        """
        require_numbers(probability)
        # "<" and not "<=": with "<=", probability 0 would give True if the uniform number is 0.
        return self._generator.random() < probability

    def choice(self, weights: Row) -> int:
        """See `RandomGenerator`.

        Raises:
            ModelError: A weight is NaN.
            ValueError: All weights are 0.
        """
        possible = np.flatnonzero(weights)
        until = np.cumsum(weights[possible], dtype=np.float64)
        if not len(until):
            raise ValueError("nothing to choose from: all weights are 0")
        require_numbers(until[-1])
        # `min` is needed if the weights are subnormal: rounding can then make the product as large as the total.
        place = np.searchsorted(until, self._generator.random() * until[-1], side="right")
        return int(possible[min(place, len(possible) - 1)])

    def integers(self, count: int) -> int:
        return int(self._generator.integers(count))

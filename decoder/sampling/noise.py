"""Gumbel noise that depends on nothing but (seed, position in the text, token): a counter-based random generator.

Whoever asks for the noise of a position gets the same numbers, however many rows are computed beside it and wherever.
Integers and uniforms are equal bit for bit in numpy and torch, on every device; logarithms are those of the library.
Mixing is SplitMix64's (Steele, Lea, Flood 2014), once for the seed, once for the position, once for the token.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

Integers = TypeVar("Integers", NDArray[np.int64], Tensor)
"""int64 of either library, which both wrap around."""
TokenNoise: TypeAlias = Callable[[int, Sequence[int]], Sequence[float]]
"""(position, tokens) -> noise that coupled sampling adds to each token's log-probability there."""
BITS = 52
"""Bits of a uniform number. With one bit more, half a step under 1 would round to 1."""


def signed(number: int) -> int:
    """The lowest 64 bits of a number as int64."""
    lowest = number % (1 << 64)
    return lowest - (1 << 64) if lowest >> 63 else lowest


GOLDEN, FIRST, SECOND = map(signed, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_WORD = (1 << 64) - 1
_ROUNDS = tuple((np.uint64(by), np.uint64(factor & _WORD)) for by, factor in ((30, FIRST), (27, SECOND)))
_LAST, _UNUSED = np.uint64(31), np.uint64(64 - BITS)


def mixed(counters: Integers) -> Integers:
    """Bits of which each depends on all bits of its counter."""
    found = (counters ^ _shifted(counters, 30)) * FIRST
    found = (found ^ _shifted(found, 27)) * SECOND
    return found ^ _shifted(found, 31)


def streams(seed: Integers, positions: Integers) -> Integers:
    """The start of each position's stream of bits: seed of shape (1,), positions from 0, of shape (N,)."""
    return mixed(mixed(seed + GOLDEN) + (positions + 1) * GOLDEN)


def random_bits(starts: Integers, tokens: Integers) -> Integers:
    """`BITS` random bits for each position, by its stream, and token.

    Args:
        starts: `streams`, shape (N,).
        tokens: Ids, shape (V,).

    Returns:
        Shape (N, V), from 0 to 2 ** BITS - 1.
    """
    return _shifted(mixed(starts[:, None] + (tokens + 1) * GOLDEN), 64 - BITS)


def _shifted(numbers: Integers, by: int) -> Integers:
    """Shifted to the right, zeros coming in."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)


def gumbel(seed: int, positions: Sequence[int], vocabulary: int) -> NDArray[np.float64]:
    """The noise of positions, shape (N, V)."""
    noise = bits_on_host(seed, positions, vocabulary).astype(np.float64)
    noise += 0.5
    noise *= 2.0**-BITS
    for _ in range(2):
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
    return noise


def bits_on_host(seed: int, positions: Sequence[int], vocabulary: int) -> NDArray[np.uint64]:
    """The `random_bits` of tokens from 0 on, in place: half the time, which every new token of a text pays for."""
    start = _mixed(seed + GOLDEN)
    starts = [_mixed(start + (position + 1) * GOLDEN) for position in positions]
    found = np.array(starts, dtype=np.uint64)[:, None] + _steps(vocabulary)
    shifted = np.empty_like(found)
    for by, factor in _ROUNDS:
        found ^= np.right_shift(found, by, out=shifted)
        found *= factor
    found ^= np.right_shift(found, _LAST, out=shifted)
    found >>= _UNUSED
    return found


def _mixed(counter: int) -> int:
    """`mixed` of one counter, from 0 on."""
    found = counter & _WORD
    for by, factor in ((30, FIRST), (27, SECOND)):
        found = (found ^ found >> by) * factor & _WORD
    return found ^ found >> 31


@lru_cache(maxsize=4)
def _steps(vocabulary: int) -> NDArray[np.uint64]:
    return np.arange(1, vocabulary + 1, dtype=np.uint64) * np.uint64(GOLDEN & _WORD)


def gumbel_on_device(
    seed: Int[Tensor, "1"], positions: Int[Tensor, "N"], tokens: Int[Tensor, "V"]
) -> Float[Tensor, "N V"]:
    """The same where the tensors are, and nothing waits for it."""
    return gumbel_of(streams(seed, positions), tokens)


def gumbel_of(starts: Int[Tensor, "N"], tokens: Int[Tensor, "V"]) -> Float[Tensor, "N V"]:
    """The same for `streams` that are known, so that a graph holds half as many operations."""
    return -((random_bits(starts, tokens).to(torch.float64) + 0.5) * 2.0**-BITS).log().neg().log()

"""Gumbel noise as a function of (seed, position in the text, token) alone: a counter-based random generator.

The noise of a position is the same in every process, whichever positions are computed together. Integers and uniform
numbers are equal bit for bit in numpy and torch, on every device; logarithms may differ between the libraries. The
mixing function of SplitMix64 (Steele, Lea, Flood 2014) is applied once to the seed, once to the position, once to the
token.
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
"""Int64, of numpy or torch; both wrap around on overflow."""
TokenNoise: TypeAlias = Callable[[int, Sequence[int]], Sequence[float]]
"""(position, tokens) -> noise that coupled sampling adds to each token's log-probability."""
Offsets: TypeAlias = Sequence[Float[Tensor, "V"]]
"""Added to rows of logits, in float32."""
BITS = 52
"""Of a uniform random number. With one bit more, the largest would round to 1 in float64."""


def signed(number: int) -> int:
    """The lowest 64 bits of a number, as a signed integer."""
    lowest = number % (1 << 64)
    return lowest - (1 << 64) if lowest >> 63 else lowest


GOLDEN, FIRST, SECOND = map(signed, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_WORD = (1 << 64) - 1
_ROUNDS = tuple((np.uint64(by), np.uint64(factor & _WORD)) for by, factor in ((30, FIRST), (27, SECOND)))
_LAST, _UNUSED = np.uint64(31), np.uint64(64 - BITS)


def mix(counters: Integers) -> Integers:
    """SplitMix64: each bit of a result depends on all bits of its counter."""
    bits = (counters ^ _shifted(counters, 30)) * FIRST
    bits = (bits ^ _shifted(bits, 27)) * SECOND
    return bits ^ _shifted(bits, 31)


def streams(seed: Integers, positions: Integers) -> Integers:
    """First counter of each position's random bits, shape (N,), from the seed, shape (1,), and positions from 0, shape
    (N,).
    """
    return mix(mix(seed + GOLDEN) + (positions + 1) * GOLDEN)


def random_bits(starts: Integers, tokens: Integers) -> Integers:
    """Integers from 0 to 2 ** BITS - 1, shape (N, V), from `streams`, shape (N,), and token ids, shape (V,)."""
    return _shifted(mix(starts[:, None] + (tokens + 1) * GOLDEN), 64 - BITS)


def _shifted(numbers: Integers, by: int) -> Integers:
    """Logical shift to the right, also of negative numbers."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)


def gumbel(seed: int, positions: Sequence[int], vocabulary: int) -> NDArray[np.float64]:
    """On the host; shape (N, V)."""
    noise = bits_on_host(seed, positions, vocabulary).astype(np.float64)
    noise += 0.5
    noise *= 2.0**-BITS
    for _ in range(2):
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
    return noise


def gumbel_of_tokens(seed: int, position: int, tokens: Sequence[int]) -> list[float]:
    """Of a few tokens at one position, on the host."""
    starts = streams(np.array([signed(seed)]), np.array([position]))
    bits = random_bits(starts, np.array(tokens, dtype=np.int64))[0]
    return [*map(float, -np.log(-np.log((bits + 0.5) * 2.0**-BITS)))]


def bits_on_host(seed: int, positions: Sequence[int], vocabulary: int) -> NDArray[np.uint64]:
    """`random_bits` of tokens 0 to V - 1, in place, which halves the time per position."""
    start = _mix(seed + GOLDEN)
    starts = [_mix(start + (position + 1) * GOLDEN) for position in positions]
    bits = np.array(starts, dtype=np.uint64)[:, None] + _steps(vocabulary)
    shifted = np.empty_like(bits)
    for by, factor in _ROUNDS:
        bits ^= np.right_shift(bits, by, out=shifted)
        bits *= factor
    bits ^= np.right_shift(bits, _LAST, out=shifted)
    bits >>= _UNUSED
    return bits


def _mix(counter: int) -> int:
    """`mix` of one counter, as a Python integer from 0 to 2 ** 64 - 1."""
    bits = counter & _WORD
    for by, factor in ((30, FIRST), (27, SECOND)):
        bits = (bits ^ bits >> by) * factor & _WORD
    return bits ^ bits >> 31


@lru_cache(maxsize=4)
def _steps(vocabulary: int) -> NDArray[np.uint64]:
    return np.arange(1, vocabulary + 1, dtype=np.uint64) * np.uint64(GOLDEN & _WORD)


def gumbel_on_device(
    seed: Int[Tensor, "1"], positions: Int[Tensor, "N"], tokens: Int[Tensor, "V"]
) -> Float[Tensor, "N V"]:
    """Shape (N, V), on the device of the arguments; does not synchronise host and device."""
    return gumbel_of(streams(seed, positions), tokens)


def gumbel_of(starts: Int[Tensor, "N"], tokens: Int[Tensor, "V"]) -> Float[Tensor, "N V"]:
    """Shape (N, V), from `streams`: computed in advance, they halve the operations in a CUDA graph."""
    return -((random_bits(starts, tokens).to(torch.float64) + 0.5) * 2.0**-BITS).log().neg().log()

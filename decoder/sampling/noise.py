"""Gumbel noise as a function of (seed, position in the text, token) alone; coupled sampling of one text, in which
target and draft share the noise; and noise and sampling settings in tensors that CUDA graphs read.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from decoder.sampling.settings import Sampling, Schedule
from decoder.sampling.truncation import (
    LEAST_TEMPERATURE,
    DeviceTruncation,
    Truncating,
    Truncation,
    best_kept,
    truncation_mask,
    with_truncation,
)

Integers = TypeVar("Integers", NDArray[np.int64], Tensor)
"""Int64 arrays of numpy or tensors of torch; both wrap around on overflow."""
TokenNoise: TypeAlias = Callable[[int, Sequence[int]], Sequence[float]]
"""(position, tokens) -> noise that coupled sampling adds to each token's log-probability."""
HostNoise: TypeAlias = Callable[[int, Sequence[int], int], Float[Tensor, "N V"]]
"""(seed, positions, vocabulary) -> Gumbel noise in float32, on the host."""
Offsets: TypeAlias = Sequence[Float[Tensor, "V"]]
"""For each row of logits, numbers that are added to the logits, in float32."""
BITS = 52
"""Bits of a uniform random number. With one bit more, the largest number would round to 1 in float64."""


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
    """Gumbel noise on the host, shape (N, V)."""
    noise = bits_on_host(seed, positions, vocabulary).astype(np.float64)
    noise += 0.5
    noise *= 2.0**-BITS
    for _ in range(2):
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
    return noise


def gumbel_by_numpy(seed: int, positions: Sequence[int], vocabulary: int) -> Float[Tensor, "N V"]:
    """`gumbel` in float32."""
    return torch.from_numpy(gumbel(seed, positions, vocabulary).astype(np.float32))


def gumbel_of_tokens(seed: int, position: int, tokens: Sequence[int]) -> list[float]:
    """Gumbel noise of a few tokens at one position, on the host."""
    starts = streams(np.array([signed(seed)]), np.array([position]))
    bits = random_bits(starts, np.array(tokens, dtype=np.int64))[0]
    return [*map(float, -np.log(-np.log((bits + 0.5) * 2.0**-BITS)))]


def bits_on_host(seed: int, positions: Sequence[int], vocabulary: int) -> NDArray[np.uint64]:
    """`random_bits` of tokens 0 to V - 1, shape (N, V), in half the time, since operations are in place."""
    bits = np.array(starts_on_host(seed, positions), dtype=np.uint64)[:, None] + _steps(vocabulary)
    shifted = np.empty_like(bits)
    for by, factor in _ROUNDS:
        bits ^= np.right_shift(bits, by, out=shifted)
        bits *= factor
    bits ^= np.right_shift(bits, _LAST, out=shifted)
    bits >>= _UNUSED
    return bits


def starts_on_host(seed: int, positions: Sequence[int]) -> list[int]:
    """`streams` as integers from 0 to 2 ** 64 - 1."""
    start = _mix(seed + GOLDEN)
    return [_mix(start + (position + 1) * GOLDEN) for position in positions]


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
    """Gumbel noise on the device of the arguments; does not synchronise host and device."""
    return gumbel_of(streams(seed, positions), tokens)


def gumbel_of(starts: Int[Tensor, "N"], tokens: Int[Tensor, "V"]) -> Float[Tensor, "N V"]:
    """Gumbel noise from `streams`, which are computed in advance to halve the operations in a CUDA graph."""
    return -((random_bits(starts, tokens).to(torch.float64) + 0.5) * 2.0**-BITS).log().neg().log()


@dataclass(frozen=True)
class Estimate:
    """Estimated distributions of the target's tokens, per row of draft logits: softmax((logits + offset) * factor)."""

    factors: Sequence[float]
    offsets: Offsets | None = None
    """Numbers added to the logits, on the device of the logits."""
    truncation: Sequence[Sampling] | None = None
    """Settings of each row; tokens that they exclude get a penalty. None if no row excludes tokens."""

    def scores(self, logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        """Logits of the estimated distributions, in float32."""
        offsets = self.offsets
        if self.truncation is not None:
            offsets = with_truncation(logits, offsets, self.truncation)
        rows = logits.float() if offsets is None else logits.float() + torch.stack(list(offsets))
        return rows * torch.tensor(self.factors, device=rows.device)[:, None]


def _truncating(settings: list[Sampling]) -> list[Sampling] | None:
    """The settings of the rows; None if no row excludes tokens."""
    return settings if any(sampling.truncates for sampling in settings) else None


class DraftProbabilities:
    """Probabilities by which draft trees grow: the draft's own, at the target's temperature. The subclass `GumbelNoise`
    is for drafts that add the target's noise.
    """

    noisy = False
    """Whether the probabilities include the target's noise, and so differ from the draft's own."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def greedy_from(self, position: int) -> bool:
        """Whether decoding is greedy from a position on; if so, the draft's logits stay unchanged."""
        return self._schedule.greedy_from(position)

    def estimate(self, positions: Sequence[int]) -> Estimate:
        """Estimate of the target's tokens at `positions`, for the draft's logits at the same positions."""
        settings = [self._schedule.at(position) for position in positions]
        factors = [
            1.0 if sampling.greedy else 1 / max(sampling.temperature, LEAST_TEMPERATURE) for sampling in settings
        ]
        return Estimate(factors, None, _truncating(settings))

    def noise_from(self, position: int) -> TokenNoise | None:
        """The noise from a position on; None if decoding is greedy from there on, or if the draft uses no noise."""
        del position
        return None


def sharpness(temperature: float) -> float:
    """Factor on the draft's logits plus noise; the softmax then estimates how probably the target chooses each token.

    1 / factor is the spread of the target's scores around the draft's scores. One part of the spread is constant. The
    other part grows with the temperature: a higher temperature chooses more of the less probable tokens, whose draft
    scores are less precise. With the embedded pair, on 15 texts, the factors with the least log loss at temperatures
    .1, .3, .6, 1, 1.3 and 1.6 are 3.7, 3.4, 2.5, 1.7, 1.3 and 1.1; this function returns 3.9, 3.3, 2.4, 1.7, 1.3 and
    1.1.
    """
    return 1 / math.hypot(0.25, 0.55 * temperature)


CACHED_ROWS = 128
"""Number of positions whose noise is cached."""
MADE_AT_ONCE, MOST_NUMBERS = 16, 1 << 16
"""Largest numbers of positions and of random numbers in one computation of noise."""


class GumbelNoise(DraftProbabilities):
    """Gumbel noise of one text, which is added to logits; the noise of recent positions is cached."""

    noisy = True

    def __init__(
        self,
        seed: int,
        schedule: Schedule,
        vocabulary: int,
        device: torch.device,
        on_host: HostNoise = gumbel_by_numpy,
    ) -> None:
        super().__init__(schedule)
        self._on_host = on_host
        self._seed = seed
        self._vocabulary = vocabulary
        self.device = device
        self._rows: dict[int, tuple[float, Float[Tensor, V]]] = {}
        """The temperature at each position, and the noise times this temperature."""

    def sampling(self, position: int) -> Sampling:
        return self._schedule.at(position)

    def scores(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Float[Tensor, "N V"]:
        """Logits plus noise. Of the tokens that truncation keeps, the target chooses the one with the largest score."""
        return logits.float() + self._noise(positions)

    def choices(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> list[int]:
        """The target's choice at each position."""
        rows = logits.float()
        if self.device.type == "cpu":
            return [self._choice(row, position) for row, position in zip(rows, positions, strict=True)]
        settings = [self._schedule.at(position) for position in positions]
        scores = self.scores(rows, positions)
        for row, sampling in enumerate(settings):
            if sampling.truncates:
                scores[row].masked_fill_(~truncation_mask(rows[row : row + 1], sampling)[0], -torch.inf)
        return scores.argmax(-1).tolist()

    def chooser(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Callable[[int], int]:
        """A function that returns the target's choice for the index of a row. On a CPU, it computes only the few rows
        that are asked for.
        """
        if self.device.type != "cpu":
            return self.choices(logits, positions).__getitem__
        rows = logits.float()
        return lambda row: self._choice(rows[row], positions[row])

    def offsets(self, positions: Sequence[int]) -> list[Float[Tensor, "V"]]:
        """The numbers that `scores` adds to the logits at each position."""
        return [*map(self._row, positions)]

    def truncation(self, positions: Sequence[int]) -> list[Sampling] | None:
        """Settings of each position; None if no position excludes tokens."""
        return _truncating([self._schedule.at(position) for position in positions])

    def _choice(self, logits: Float[Tensor, "V"], position: int) -> int:
        scores = (logits + self._row(position)).numpy()
        sampling = self._schedule.at(position)
        if sampling.truncates:
            return best_kept(logits.numpy(), scores, sampling)
        # On a CPU, numpy's argmax takes a tenth of the time of torch's argmax.
        return int(scores.argmax())

    def estimate(self, positions: Sequence[int]) -> Estimate:
        """Estimate of how probably the target chooses each token, given its noise."""
        settings = [self._schedule.at(position) for position in positions]
        factors = [1.0 if each.greedy else sharpness(each.temperature) for each in settings]
        return Estimate(factors, self.offsets(positions), _truncating(settings))

    def noise_from(self, position: int) -> TokenNoise | None:
        return None if self.greedy_from(position) else self.noise_of

    def noise_of(self, position: int, tokens: Sequence[int]) -> Sequence[float]:
        """Noise that is added to each token's log-probability; 0 where decoding is greedy."""
        sampling = self._schedule.at(position)
        if sampling.greedy:
            return [0.0] * len(tokens)
        if self.device.type != "cpu":
            # The host does not wait for numbers from the device, since it can compute a few numbers itself.
            return gumbel_of_tokens(self._seed, position, tokens)
        # On a CPU, numpy's indexing takes a tenth of the time of torch's indexing.
        return [noise / sampling.temperature for noise in self._row(position).numpy()[list(tokens)].tolist()]

    def _noise(self, positions: Sequence[int]) -> Float[Tensor, "N V"]:
        first = self._row(positions[0])
        if all(position == positions[0] for position in positions):
            return first
        return torch.stack([first, *map(self._row, positions[1:])])

    def _row(self, position: int) -> Float[Tensor, "V"]:
        temperature = self._schedule.at(position).temperature
        if position not in self._rows or self._rows[position][0] != temperature:
            self._make(position)
        return self._rows[position][1]

    def _make(self, position: int) -> None:
        """Makes the noise of a position together with the noise of the positions after it, which takes a third of the
        time per position.
        """
        if len(self._rows) > CACHED_ROWS:
            self._rows = {place: row for place, row in self._rows.items() if place >= position - CACHED_ROWS // 2}
        places = range(position, position + max(1, min(MADE_AT_ONCE, MOST_NUMBERS // self._vocabulary)))
        temperatures = [self._schedule.at(place).temperature for place in places]
        rows = self._computed(places).mul_(torch.tensor(temperatures, device=self.device)[:, None]).unbind()
        self._rows.update(zip(places, zip(temperatures, rows, strict=True), strict=True))

    def _computed(self, positions: Sequence[int]) -> Float[Tensor, "N V"]:
        if self.device.type == "cpu":
            return self._on_host(self._seed, positions, self._vocabulary)
        seed, places = (torch.tensor(numbers, device=self.device) for numbers in ([signed(self._seed)], [*positions]))
        return gumbel_on_device(seed, places, torch.arange(self._vocabulary, device=self.device)).float()


class DeviceSampling:
    """A text's seed, and its sampling settings by position, in tensors with fixed addresses for CUDA graphs."""

    def __init__(self, device: torch.device, capacity: int, truncating: Truncating = DeviceTruncation.of) -> None:
        """Allocates tensors for `capacity` positions."""
        self._truncating = truncating
        self._positions = torch.arange(capacity, device=device)
        self._streams: Int[Tensor, S] = torch.zeros_like(self._positions)
        """See the function `streams`."""
        self._temperature: Float[Tensor, S] = torch.zeros(capacity, device=device)
        self._truncation: Float[Tensor, "S 3"] = torch.ones((capacity, 3), dtype=torch.float64, device=device)
        """See `Truncating`. Greedy positions keep all tokens."""
        self._sharpness: Float[Tensor, S] = torch.ones(capacity, device=device)

    def follow(self, seed: int, schedule: Schedule, position: int) -> None:
        """Writes a seed, and the settings from a position on; does not synchronise host and device."""
        number = torch.full((1,), signed(seed), device=self._positions.device)
        self._streams.copy_(streams(number, self._positions))
        for start, sampling in schedule.in_force(position):
            self._temperature[start:].fill_(sampling.temperature)
            settings = sampling.temperature, sampling.ranks, sampling.share
            if not sampling.truncates:
                settings = 1.0, math.inf, math.inf
            for column, setting in enumerate(settings):
                self._truncation[start:, column].fill_(setting)
            self._sharpness[start:].fill_(1.0 if sampling.greedy else sharpness(sampling.temperature))

    def noise(self, positions: Int[Tensor, "D"], vocabulary: int) -> Float[Tensor, "D V"]:
        """Gumbel noise times the temperature of each position."""
        tokens = torch.arange(vocabulary, device=positions.device)
        noise = gumbel_of(self._streams.index_select(0, positions), tokens).float()
        return noise * self._temperature.index_select(0, positions)[:, None]

    def sharpness(self, positions: Int[Tensor, "D"]) -> Float[Tensor, "D"]:
        """The function `sharpness` of the temperature at each position; 1 where decoding is greedy."""
        return self._sharpness.index_select(0, positions)

    def truncation(self, positions: Int[Tensor, "N"], vocabulary: int) -> Truncation:
        """Truncation of one row per entry of `positions`; positions may repeat."""
        return self._truncating(self._truncation.index_select(0, positions), vocabulary)

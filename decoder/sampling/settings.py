"""Sampling settings: temperature, top-k, top-p, and the positions from which they apply. Independent of models."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from decoder.errors import require
from decoder.knobs import KnobInfo, TunableParameters

SAMPLING = "sampling"
"""Name of the parameter set that all methods share."""
HIGHEST_TEMPERATURE = 2.0
LEAST_TOP_P = 0.05
"""Lower bound of the knob `top_p`; option --top-p accepts smaller values."""


@dataclass(frozen=True)
class Sampling(TunableParameters):
    """Tokens are sampled from softmax(logits / temperature), truncated and renormalised."""

    temperature: float = 0.0
    """0 is greedy decoding."""
    top_k: int = 0
    """Number of most probable tokens that are kept; 0 keeps all tokens."""
    top_p: float = 1.0
    """Top-p keeps the smallest set of most probable tokens with at least this share of the top-k tokens' probability; 1
    keeps all top-k tokens.
    """

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        KnobInfo("temperature", "T", "sampling temperature; 0: greedy", "real",
                 lambda _: (0.0, HIGHEST_TEMPERATURE), 0.05, 0.2, keys="()"),
        KnobInfo("top_p", "top-p", "total probability of the kept tokens", "probability",
                 lambda own: (min(own.top_p, LEAST_TOP_P), 1.0), 0.05, 0.2, keys=",;"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        require(
            0 <= self.temperature <= HIGHEST_TEMPERATURE,
            f"temperature is {self.temperature:g}; give 0 (greedy) to {HIGHEST_TEMPERATURE:g}",
            "temperature",
        )
        require(self.top_k >= 0, f"top_k is {self.top_k}; give 1 or more, or 0 for all tokens", "top_k")
        require(0 < self.top_p <= 1, f"top_p is {self.top_p:g}; give more than 0 and at most 1 (all tokens)", "top_p")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def truncates(self) -> bool:
        return not self.greedy and (self.top_k > 0 or self.top_p < 1)

    @property
    def ranks(self) -> float:
        return self.top_k or math.inf

    @property
    def share(self) -> float:
        """Share of the top-k tokens' probability that top-p keeps; infinite if top-p excludes no token."""
        return self.top_p if self.top_p < 1 else math.inf


class Schedule:
    """Sampling settings by position. All methods of a run share one schedule, so that a change applies to the same
    positions in all methods, even in slow ones, and all methods write the same text.
    """

    def __init__(self, sampling: Sampling | None = None) -> None:
        self._starts = [0]
        self._settings = [sampling or Sampling()]
        self.turns = 0
        """Number of changes so far; a copy of the settings is outdated once this number has grown."""

    @property
    def latest(self) -> Sampling:
        return self._settings[-1]

    def greedy_from(self, position: int) -> bool:
        if len(self._settings) == 1:
            return self._settings[0].greedy
        return all(sampling.greedy for _, sampling in self.in_force(position))

    def truncates_from(self, position: int) -> bool:
        return any(sampling.truncates for _, sampling in self.in_force(position))

    def in_force(self, position: int) -> Iterator[tuple[int, Sampling]]:
        """Pairs (first position, settings), in ascending order, of all settings that apply at `position` or later."""
        begun = bisect_right(self._starts, position) - 1
        return zip(self._starts[begun:], self._settings[begun:], strict=True)

    def at(self, position: int) -> Sampling:
        return self._settings[bisect_right(self._starts, position) - 1]

    def turn(self, position: int, sampling: Sampling) -> None:
        """Changes the settings from a position on; positions must not decrease from call to call."""
        self.turns += 1
        if self._starts[-1] == position:
            self._settings[-1] = sampling
        else:
            self._starts.append(position)
            self._settings.append(sampling)

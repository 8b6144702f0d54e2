"""Cost profile: times passes of draft and target in turn, as a round runs them.

One after the other matters: a draft that has just given way to the target runs slower than in a loop of its own. Takes
well under two seconds; sizes that would take longer are left to be guessed from the smaller ones.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from decoder.device import Stopwatch
from decoder.draft.tree_size.cost_model import SELDOM_STEP, Costs, Curve
from decoder.forward.eagle3.unguided import Unguided
from decoder.forward.protocol import Forward
from decoder.models.pair import Pair

VERIFIED_ROWS = (2, 3, 5, 9, 17, 33, 65, 4, 6, 7, 8, 11, 13)
DRAFTED_ROWS = (1, 2, 4, 8, 16, 32, 64, 3, 5, 6, 7, 10, 12)
"""Sizes that are measured together: what spans them first, then those between, where products like some rows better."""
REPEATS = 15
LIMIT_S = 0.5
"""No further call begins after this, once each size was measured."""
LATEST_S = 1.5
"""No further size begins after this."""
HOST_SHARE = 0.03
"""Of a plain round: what the rest of a round is thought to take until rounds have told."""
NOTHING = {1: 0.0}
"""What passes take that nobody makes."""


class Clock(Protocol):
    """The clock of a measurement."""

    def now(self) -> float:
        """Seconds since some moment, when the device has done its work."""


@torch.inference_mode()
def measured(pair: Pair, rows: int, clock: Clock | None = None) -> Costs:
    """Costs of rounds on a text of about so many tokens, by a clock; None: the device's.

    Without a draft model its passes cost nothing.
    """
    rows = max(0, min(rows, pair.context - max(VERIFIED_ROWS)))
    clock = clock or Stopwatch(pair.target.device)
    target = _Calls(pair.target, rows, clock)
    drafting = Unguided(pair.head) if pair.head else pair.draft
    draft = _Calls(drafting, rows, clock) if drafting else None
    started = clock.now()
    plain: list[float] = []
    caught, drafted, verified = (defaultdict[int, list[float]](list) for _ in range(3))
    for repeat in range(REPEATS):
        if repeat and clock.now() - started > LIMIT_S:
            break
        plain += [target.seconds(1), target.seconds(1)]
        for many, few in zip(VERIFIED_ROWS, DRAFTED_ROWS, strict=True):
            if verified and clock.now() - started > LATEST_S:
                break
            if many > pair.context:
                continue
            if draft:
                caught[few].append(draft.reading_seconds(few))
                drafted[few].append(draft.seconds(few))
            verified[many].append(target.seconds(many))
    first = _usual(plain[1:])
    return Costs(
        plain=Curve({1: first}, SELDOM_STEP),
        catch_up=Curve({rows: _usual(times) for rows, times in caught.items()} or NOTHING),
        draft=Curve({rows: _usual(times) for rows, times in drafted.items()} or NOTHING),
        verify=Curve({1: first} | {rows: _usual(times) for rows, times in verified.items()}),
        host=Curve({1: first * HOST_SHARE}),
    )


def _usual(times: Sequence[float]) -> float:
    """Undisturbed time of a call: the second best, since disturbances only add time."""
    return sorted(times)[:2][-1]


class _Calls:
    """Timed forward passes after a text of so many tokens, whatever they are."""

    def __init__(self, model: Forward, rows: int, clock: Clock) -> None:
        self._model, self._clock, self._rows = model, clock, rows
        self._cache: Any = model.new_cache(rows + max(VERIFIED_ROWS))
        # Keys and values of zeros take as long to read as any others; the first pass makes room for them.
        self._timed(lambda: model.read(self._cache, [0])[None])

    def seconds(self, rows: int) -> float:
        """Seconds of a pass of `rows` siblings, until its most probable tokens are known."""
        siblings = np.eye(rows, dtype=np.bool_)
        return self._timed(lambda: self._model.forward(self._cache, [0] * rows, [self._rows] * rows, siblings))

    def reading_seconds(self, rows: int) -> float:
        """The same for `rows` rows of text."""
        return self._timed(lambda: self._model.read(self._cache, [0] * rows)[None])

    def _timed(self, call: Callable[[], Tensor]) -> float:
        start = self._clock.now()
        call().float().argmax(-1).tolist()
        seconds = self._clock.now() - start
        self._cache.length = self._cache.used = self._rows
        return seconds

"""Measures draft and target passes in alternation, as in a round, since a draft pass is slower after a target pass than
after another draft pass. This takes less than two seconds. Beyond the largest measured size, times are extrapolated.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from decoder.draft.tree_size.cost_model import SELDOM_STEP, Costs, RowCostCurve
from decoder.forward.protocol import Forward
from decoder.heads.timed import timed
from decoder.models.pair import Pair
from decoder.system.computing_clock import ComputingClock

VERIFIED_ROWS = (2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 33, 65)
DRAFTED_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32, 64)
"""Measured numbers of rows, ascending: after a much larger pass, weights are not in caches, so a pass is slower."""
UNSETTLED = 3
"""Discarded one-row passes after the largest pass: cold caches make them up to twice as slow as in decoding."""
REPEATS = 15
LIMIT_S = 0.5
"""Seconds after which no further repetition of all measurements begins."""
LATEST_S = 1.5
"""Seconds after which no further size is measured."""
HOST_SHARE = 0.03
"""Initial estimate of the time outside passes, and of the time of lookups, as a fraction of a plain round."""
NOTHING = {1: 0.0}
"""Times by number of rows, for passes that are never made."""


class DeviceClock(Protocol):
    def now(self) -> float:
        """Seconds since a fixed moment; waits until the device has finished its work."""


@torch.inference_mode()
def measure_costs(pair: Pair, rows: int, clock: DeviceClock | None = None) -> Costs:
    """Measures costs on a text of about `rows` tokens. The default clock stops while the thread waits for a processor,
    so the time limits allow as many repetitions on a busy machine as on an idle machine.
    """
    rows = max(0, min(rows, pair.context - max(VERIFIED_ROWS)))
    clock = clock or ComputingClock(pair.target.device)
    target = _Calls(pair.target, rows, clock)
    drafting = timed(pair.head) if pair.head else pair.draft
    room = pair.draft.context - max(VERIFIED_ROWS) if pair.draft else rows
    draft = _Calls(drafting, max(0, min(rows, room)), clock) if drafting else None
    started = clock.now()
    plain: list[float] = []
    caught, drafted, verified = (defaultdict[int, list[float]](list) for _ in range(3))
    for repeat in range(REPEATS):
        if repeat and clock.now() - started > LIMIT_S:
            break
        plain += [target.seconds(1) for _ in range(UNSETTLED + 2)][UNSETTLED:]
        for many, few in zip(VERIFIED_ROWS, DRAFTED_ROWS, strict=True):
            if verified and clock.now() - started > LATEST_S:
                break
            if many > pair.context:
                continue
            if draft:
                caught[few].append(draft.reading_seconds(few))
                drafted[few].append(draft.seconds(few))
            verified[many].append(target.seconds(many))
    first = _undisturbed(plain)
    return Costs(
        plain=RowCostCurve({1: first}, SELDOM_STEP),
        catch_up=RowCostCurve({rows: _undisturbed(times) for rows, times in caught.items()} or NOTHING),
        draft=RowCostCurve({rows: _undisturbed(times) for rows, times in drafted.items()} or NOTHING),
        verify=RowCostCurve({1: first} | {rows: _undisturbed(times) for rows, times in verified.items()}),
        host=RowCostCurve({1: first * HOST_SHARE}),
        lookup=RowCostCurve({1: first * HOST_SHARE}, SELDOM_STEP),
    )


def _undisturbed(times: Sequence[float]) -> float:
    """The second shortest of several times, since disturbances only add time."""
    return sorted(times)[:2][-1]


class _Calls:
    """Passes after a text of `rows` arbitrary tokens."""

    def __init__(self, model: Forward, rows: int, clock: DeviceClock) -> None:
        self._model, self._clock, self._rows = model, clock, rows
        self._cache: Any = model.new_cache(rows + max(VERIFIED_ROWS))
        # This first pass allocates the keys and values of the text. They remain zeros, which take as long to read as
        # other values.
        self._timed(lambda: model.read(self._cache, [0])[None])

    def seconds(self, rows: int) -> float:
        """Time of a pass over `rows` siblings, until the most probable tokens are known."""
        siblings = np.eye(rows, dtype=np.bool_)
        return self._timed(lambda: self._model.forward(self._cache, [0] * rows, [self._cache.length] * rows, siblings))

    def reading_seconds(self, rows: int) -> float:
        """Time of a pass over `rows` tokens of text, until the most probable next token is known."""
        return self._timed(lambda: self._model.read(self._cache, [0] * rows)[None])

    def _timed(self, call: Callable[[], Tensor]) -> float:
        start = self._clock.now()
        call().float().argmax(-1).tolist()
        seconds = self._clock.now() - start
        self._cache.assume(self._rows)
        return seconds

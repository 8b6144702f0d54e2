"""Pending rounds of a session: work queued on the device, and results copied to the host.

All work, times and waits of a round pass through here. Knows neither rules nor texts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decoder.session.cuda_graph.slots import GraphSlot
from decoder.session.cuda_graph.static_shapes import Shape, bucket
from decoder.system.device import Mark


class Clock:
    """Clock of the host's time in a round, without pauses; reads no device clock."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Leaves the last `seconds` out of the time."""
        self._start_s += seconds

    def seconds(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._start_s


@dataclass(frozen=True)
class PendingRound:
    """Work that is queued on the device."""

    begun: Mark
    done: Mark

    @property
    def seconds(self) -> float:
        """Duration on the device, in seconds; known after a wait for this or later work."""
        return self.done.seconds_since(self.begun)


class PendingRounds:
    """Pending rounds of one session, at most two at a time, and their report, which is being copied."""

    def __init__(self, slot: GraphSlot) -> None:
        self.waits = 0
        self._slot = slot

    def draft(self, shape: Shape, length: int, clock: Clock, most: int | None = None) -> PendingRound:
        """Queues the draft of a tree after a text of at most `length` tokens; `most`: its nodes, None: by the rules."""
        if most is not None:
            self._slot.state.rule.n_max.fill_(most)
        return self._ask(lambda: self._slot.drafting(shape, length), clock)

    def verification(self, nodes: int, length: int, clock: Clock) -> PendingRound:
        """Queues the verification of a tree of at most `nodes` nodes after a text of at most `length` tokens."""
        return self._ask(lambda: self._slot.verification(bucket(nodes), length), clock)

    def report(self) -> Mark:
        """Queues a copy of the report of all work so far; the next verification overwrites the report on the device."""
        return self._slot.mailbox.send(self._slot.state.report)

    def wait(self, arrival: Mark) -> NDArray[np.float64]:
        """Waits for a report and all work before it; the report is valid until the next one is queued."""
        self.waits += 1
        return self._slot.mailbox.receive(arrival)

    def _ask(self, prepare: Callable[[], Callable[[], None]], clock: Clock) -> PendingRound:
        # Captures happen once a pair, and do not count as decode time.
        before_s = self._slot.capturing_s
        work = prepare()
        clock.leave_out(self._slot.capturing_s - before_s)
        begun = self._slot.mark()
        work()
        return PendingRound(begun, self._slot.mark())

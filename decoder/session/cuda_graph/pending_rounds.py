"""Pending rounds of a session: work that is queued on the device, and results that are copied to the host.

The only place where a round's work, its times and its one wait meet. Knows neither rules nor texts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decoder.device import Mark
from decoder.session.cuda_graph.slots import GraphSlot
from decoder.session.cuda_graph.static_shapes import Shape, bucket


class Clock:
    """The host's time in a round, without pauses; reads no device clock."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Takes no notice of the last `seconds`."""
        self._start_s += seconds

    def seconds(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._start_s


@dataclass(frozen=True)
class PendingRound:
    """Work that the device was asked for."""

    begun: Mark
    done: Mark

    @property
    def seconds(self) -> float:
        """Seconds on the device; known once it, or later work, was waited for."""
        return self.done.seconds_since(self.begun)


class PendingRounds:
    """One session's pending rounds, at most two at a time, and the one report of them that is on its way."""

    def __init__(self, slot: GraphSlot) -> None:
        self.waits = 0
        self._slot = slot

    def draft(self, shape: Shape, length: int, clock: Clock, most: int | None = None) -> PendingRound:
        """Asks for a tree after a text of at most so many tokens; `most`: its nodes, where that is not the rules'."""
        if most is not None:
            self._slot.state.rule.n_max.fill_(most)
        return self._ask(lambda: self._slot.drafting(shape, length), clock)

    def verification(self, nodes: int, length: int, clock: Clock) -> PendingRound:
        """Queues the verification of a tree of so many nodes."""
        return self._ask(lambda: self._slot.verification(bucket(nodes), length), clock)

    def report(self) -> Mark:
        """Asks for a copy of what all work so far reports; the next verification writes over it on the device."""
        return self._slot.mailbox.send(self._slot.state.report)

    def wait(self, arrival: Mark) -> NDArray[np.float64]:
        """Waits for a report and all work before it; it is valid until another is asked for."""
        self.waits += 1
        return self._slot.mailbox.receive(arrival)

    def _ask(self, prepare: Callable[[], Callable[[], None]], clock: Clock) -> PendingRound:
        # Captures are made once a pair, and no part of decoding.
        before_s = self._slot.capturing_s
        work = prepare()
        clock.leave_out(self._slot.capturing_s - before_s)
        begun = self._slot.mark()
        work()
        return PendingRound(begun, self._slot.mark())

"""Pending rounds of a session: work queued on the device, and results copied to the host.

This module queues all work of a round, measures how long the work takes, and counts how often the host waits. It knows
neither rules nor texts.
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
    """The host's clock of a round; it does not count pauses, and does not wait for the device."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Excludes the last `seconds` from the measured time."""
        self._start_s += seconds

    def seconds(self) -> float:
        """Time since the clock was made, in seconds, without excluded times."""
        return time.perf_counter() - self._start_s


@dataclass(frozen=True)
class PendingRound:
    """Draft or verification that is queued on the device, between two marks in the device's stream."""

    begun: Mark
    done: Mark

    @property
    def seconds(self) -> float:
        """Duration on the device, in seconds; only known after the host has waited for this work or later work."""
        return self.done.seconds_since(self.begun)


class PendingRounds:
    """Queue of one session's drafts and verifications on the device; copies their reports to the host."""

    def __init__(self, slot: GraphSlot) -> None:
        self.waits = 0
        self._slot = slot

    def draft(self, shape: Shape, length: int, clock: Clock, most: int | None = None) -> PendingRound:
        """Queues the draft of a tree after a text of at most `length` tokens; `most`, if given, limits the number of
        drafted nodes.
        """
        if most is not None:
            self._slot.state.rule.n_max.fill_(most)
        return self._ask(lambda: self._slot.drafting(shape, length), clock)

    def verification(self, nodes: int, length: int, clock: Clock, deepest: int = 0) -> PendingRound:
        """Queues the verification of a tree of at most `nodes` nodes, in at most `deepest` levels below the root, after
        a text of at most `length` tokens.
        """
        return self._ask(lambda: self._slot.verification(bucket(nodes), length, deepest), clock)

    def report(self) -> Mark:
        """Queues a copy of the report after all queued work; the next verification overwrites the device's report."""
        return self._slot.mailbox.send(self._slot.state.report)

    def wait(self, arrival: Mark) -> NDArray[np.float64]:
        """Waits for a report and all work before it; the returned array is valid until the next copy is queued."""
        self.waits += 1
        return self._slot.mailbox.receive(arrival)

    def _ask(self, prepare: Callable[[], Callable[[], None]], clock: Clock) -> PendingRound:
        # A graph is captured only once per pair, so the time of a capture does not count as decode time.
        before_s = self._slot.capturing_s
        work = prepare()
        clock.leave_out(self._slot.capturing_s - before_s)
        begun = self._slot.mark()
        work()
        return PendingRound(begun, self._slot.mark())

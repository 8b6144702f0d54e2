"""Pending rounds of a session: work queued on the device, and results copied to the host.

This module queues all work of a round, measures how long the work takes, and counts how often the host waits. The
session's clock is stopped between rounds, but the device continues with queued work. So after the wait for this work,
the clock is advanced, if it is behind, to the reading at which the work could begin plus the duration of the work. This
module is independent of rules and texts.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decoder.session.cuda_graph.slots import GraphSlot
from decoder.session.cuda_graph.static_shapes import Shape, Size, bucket, levels
from decoder.system.device import Mark


class TextClock:
    """Clock of a text's decode time on the host; it is stopped between rounds, and never waits for the device."""

    def __init__(self) -> None:
        self._start_s = self._stopped_s = time.perf_counter()

    def resume(self) -> float:
        """Excludes the time since `stop`; returns the reading."""
        self.leave_out(time.perf_counter() - self._stopped_s)
        return self.seconds()

    def stop(self) -> None:
        self._stopped_s = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        self._start_s += seconds

    def advance_to(self, reading_s: float) -> None:
        self._start_s -= max(0.0, reading_s - self.seconds())

    def seconds(self) -> float:
        return time.perf_counter() - self._start_s


@dataclass(frozen=True)
class PendingRound:
    """A draft or verification that is queued between two marks in the device's stream."""

    begun: Mark
    done: Mark
    queued_s: float
    """Reading of the session's clock when the work was queued."""

    @property
    def seconds(self) -> float:
        """Duration on the device; known only after the host has waited for this work or later work."""
        return self.done.seconds_since(self.begun)


class PendingRounds:
    """One session's drafts and verifications on the device; copies their reports to the host."""

    def __init__(self, slot: GraphSlot) -> None:
        self.clock = TextClock()
        self._slot = slot
        self._queued: list[PendingRound] = []
        """Work queued after the last report."""
        self._reported: list[PendingRound] = []
        """Work queued before the last report; empty once the host has waited for this report."""
        self._device_s = 0.0
        """Reading of the clock at which the device ended the last work that the host has waited for."""

    def draft(self, shape: Shape, length: int, most: int | None = None) -> PendingRound:
        """Queues a draft after at most `length` tokens; `most` limits the drafted nodes."""
        if most is not None:
            self._slot.state.rule.n_max.fill_(most)
        return self._ask(shape, length)

    def verification(self, nodes: int, length: int, deepest: int = 0) -> PendingRound:
        """Queues a verification of at most `nodes` nodes and `deepest` levels, after at most `length` tokens."""
        return self._ask((bucket(nodes), levels(bucket(nodes), deepest)), length)

    def report(self) -> Mark:
        """Queues a copy of the report to the host; the next verification overwrites the report on the device."""
        self._reported += self._queued
        self._queued = []
        return self._slot.mailbox.send(self._slot.state.report)

    def wait(self, arrival: Mark) -> NDArray[np.float64]:
        """Waits for a report and all work before it; the array is valid until the next copy is queued."""
        numbers = self._slot.mailbox.receive(arrival)
        for pending in self._reported:
            self._device_s = max(self._device_s, pending.queued_s) + pending.seconds
        self._reported = []
        self.clock.advance_to(self._device_s)
        return numbers

    def _ask(self, size: Size, length: int) -> PendingRound:
        # A slot captures a graph once for all its texts, so the time of a capture does not count as decode time.
        before_s = self._slot.capturing_s
        work = self._slot.work(size, length)
        self.clock.leave_out(self._slot.capturing_s - before_s)
        queued_s, begun = self.clock.seconds(), self._slot.mark()
        work()
        pending = PendingRound(begun, self._slot.mark(), queued_s)
        self._queued.append(pending)
        return pending

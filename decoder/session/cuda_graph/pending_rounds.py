"""What a session asks of its seat: work that is queued on the device, and the results that are copied to the host.

The only place where a round's work, its times and its one wait meet. Knows neither rules nor texts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decoder.device import Mailbox, Mark
from decoder.session.cuda_graph.clock import Clock
from decoder.session.cuda_graph.slots import Seat
from decoder.session.cuda_graph.static_shapes import Shape, bucket


@dataclass(frozen=True)
class Flight:
    """Work that the device was asked for."""

    begun: Mark
    done: Mark
    sent: Mark
    """Where its report arrives."""
    mailbox: Mailbox

    @property
    def seconds(self) -> float:
        """What it took; known once it, or something later, was waited for."""
        return self.done.seconds_since(self.begun)


class Flights:
    """One session's flights, of which no more than two are in the air."""

    def __init__(self, seat: Seat) -> None:
        self.waits = 0
        """How often the host has waited for the device."""
        self._seat = seat
        self._asked = 0

    def draft(self, shape: Shape, length: int, clock: Clock, most: int | None = None) -> Flight:
        """Asks for a tree after a text of at most so many tokens; `most`: its nodes, where that is not the rules'."""
        if most is not None:
            self._seat.board.rule.numbers.n_max.fill_(most)
        return self._ask(lambda: self._seat.drafting(shape, length), clock)

    def verification(self, nodes: int, length: int, clock: Clock) -> Flight:
        """Asks what becomes of a tree of so many nodes."""
        return self._ask(lambda: self._seat.verification(bucket(nodes), length), clock)

    def land(self, flight: Flight) -> NDArray[np.float64]:
        """Waits for a flight and all before it; what it reports is valid until two more were asked for."""
        self.waits += 1
        return flight.mailbox.receive(flight.sent)

    def _ask(self, prepare: Callable[[], Callable[[], None]], clock: Clock) -> Flight:
        # Captures are made once a pair, and no part of decoding.
        before_s = self._seat.capturing_s
        work = prepare()
        clock.leave_out(self._seat.capturing_s - before_s)
        mailbox = self._seat.mailboxes[self._asked % 2]
        self._asked += 1
        begun = self._seat.mark()
        work()
        done = self._seat.mark()
        return Flight(begun, done, mailbox.send(self._seat.board.report), mailbox)

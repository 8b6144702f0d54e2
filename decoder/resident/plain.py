"""Plain decoding on the device, a token a round; the next one is asked for before the last one is read.

So the device never waits for the host, and what is asked for beyond the text's end is thrown away.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from decoder.config import RunConfig
from decoder.device import Mailbox, Mark
from decoder.engine import AtStage, Budget, Outcome, go_on
from decoder.models import Pair
from decoder.resident.board import verified
from decoder.resident.clock import Clock
from decoder.resident.seat import Seat
from decoder.steering import Turn
from decoder.tree import TokenTree


@dataclass(frozen=True)
class _Flight:
    """A token on its way."""

    begun: Mark
    landed: Mark
    mailbox: Mailbox


class PlainSession:
    """Autoregressive decoding, as `TreeSession` does it without rules."""

    def __init__(self, pair: Pair, prompt_ids: Sequence[int], config: RunConfig) -> None:
        """Takes a seat of the pair's until the text ends."""
        self.text = list(prompt_ids)
        self.waits = 0
        """How often the host has waited for the device in rounds so far."""
        self._pair = pair
        self._budget = Budget(pair.eos, config.max_new_tokens)
        self._longest = len(prompt_ids) + config.max_new_tokens
        self._seat: Seat = pair.seats.take(pair, self._longest)
        self._seated = True
        self._flights: list[_Flight] = []
        self._asked = len(prompt_ids)
        """Tokens of the text when all flights have landed."""
        self._host_s = self._device_s = self._charged_s = 0.0

    @torch.inference_mode()
    def prefill(self) -> float:
        """Reads the prompt without its last token, which is the first root."""
        start = Mark(self._pair.target.device)
        self._seat.begin(self.text, None)
        end = Mark(self._pair.target.device)
        end.wait()
        return end.seconds_since(start)

    @torch.inference_mode()
    def step(self, turns: tuple[Turn, ...], at_stage: AtStage = go_on) -> Outcome:  # noqa: ARG002 - no knobs here
        """Verifies the root alone, which brings the next token."""
        self._pair.seats.settle(self)
        clock = Clock()
        outcome = Outcome(tree=TokenTree([self.text[-1]]), draft_s=0.0, draft_forwards=0, round_s=clock.seconds())
        clock.leave_out(at_stage("drafted", outcome))
        while len(self._flights) < 2 and self._asked < self._longest:
            self._launch(clock)
        flight = self._flights.pop(0)
        told = verified(flight.mailbox.receive(flight.landed))
        self.waits += 1
        outcome.committed, outcome.finished = self._budget.cut([told.bonus])
        self.text.extend(outcome.committed)
        outcome.target_forwards, outcome.verify_s, outcome.commit_s = 1, flight.landed.seconds_since(flight.begun), 0.0
        outcome.round_s = clock.seconds()
        clock.leave_out(at_stage("verified", outcome))
        outcome.round_s = self._charge(clock.seconds(), outcome.verify_s)
        if outcome.finished:
            self.close()
        return outcome

    def close(self) -> None:
        """Gives the seat back."""
        if self._seated:
            self._pair.seats.give_back(self._seat)
            self._seated = False

    def _launch(self, clock: Clock) -> None:
        seat, before_s = self._seat, self._seat.capturing_s
        work = seat.verification(1, 0, self._asked, drafts=False)
        clock.leave_out(seat.capturing_s - before_s)
        # The one that is not in use, since flights land in their order.
        mailbox = seat.mailboxes[self._asked % 2]
        begun = Mark(self._pair.target.device)
        work()
        landed = mailbox.send(seat.board.report)
        self._flights.append(_Flight(begun, landed, mailbox))
        self._asked += 1
        self._pair.seats.ahead = self, landed

    def _charge(self, host_s: float, device_s: float) -> float:
        """What this round costs: all rounds so far take the host's time or the device's, whichever is longer."""
        self._host_s += host_s
        self._device_s += device_s
        before_s, self._charged_s = self._charged_s, max(self._host_s, self._device_s)
        return self._charged_s - before_s

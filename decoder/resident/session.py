"""A session whose rounds live on the device; the host waits for it once a round.

While the device verifies one tree and drafts the next, the host waits; then it knows what became of the one and what
the other looks like. A knob that the user turns makes it draft again. Rules that outgrow fixed shapes hand the text
over to `TreeSession`.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from decoder.config import Rules, RunConfig
from decoder.controller import Controller, Turned
from decoder.device import Mark
from decoder.engine import AtStage, Budget, Outcome, TreeSession, go_on
from decoder.metrics import depth_acceptance
from decoder.models import Pair
from decoder.resident.board import Verified, drafted, verified
from decoder.resident.clock import Clock
from decoder.resident.shape import bucket, fits, rule, shape
from decoder.steering import Turn
from decoder.tree import TokenTree


class ResidentSession:
    """Linear, fixed-tree and DynaTree decoding, as `TreeSession` does it, on the device.

    A round's time holds the draft of its own tree, wherever that ran; its commit is part of the verification.
    """

    def __init__(self, pair: Pair, prompt_ids: Sequence[int], config: RunConfig, rules: Rules) -> None:
        """Takes a seat of the pair's until the text ends.

        Args:
            pair: The models.
            prompt_ids: The prompt, at least one token.
            config: Only its length limit is read.
            rules: How trees grow until a knob is turned; `fits` them.
        """
        self._text = list(prompt_ids)
        self.waits = 0
        """How often the host has waited for the device in rounds so far."""
        self._pair = pair
        self._config = config
        self._controller = Controller(rules)
        self._budget = Budget(pair.eos, config.max_new_tokens)
        self._longest = len(prompt_ids) + config.max_new_tokens
        self._seat = pair.seats.take(pair, self._longest)
        self._seated = True
        self._tree = TokenTree([self._text[-1]])
        self._draft_s, self._draft_forwards = 0.0, 0
        """What drafts have cost that no round was charged for yet."""
        self._instead: TreeSession | None = None

    @property
    def text(self) -> Sequence[int]:
        """The prompt and what was committed."""
        return self._instead.text if self._instead else self._text

    @torch.inference_mode()
    def prefill(self) -> float:
        """Reads the prompt without its last token; then drafts the first tree, for which the first round pays."""
        start = Mark(self._pair.target.device)
        self._seat.begin(self._text, rule(self._controller.rules))
        end = Mark(self._pair.target.device)
        end.wait()
        self._draft(Clock())
        self.waits = 0
        return end.seconds_since(start)

    @torch.inference_mode()
    def step(self, turns: tuple[Turn, ...], at_stage: AtStage = go_on) -> Outcome:
        """Verify and commit the tree that is known, and draft the next one meanwhile."""
        if self._instead:
            return self._instead.step(turns, at_stage)
        self._pair.seats.settle(self)
        clock = Clock()
        turned = self._controller.apply(turns)
        if turned and not fits(self._controller.rules):
            return self._hand_over(turns, turned, at_stage)
        # What was drafted ahead is charged here, and what is drafted ahead now in the next round.
        owed_s = self._draft_s
        if turned:
            self._seat.board.knobs.turn(rule(self._controller.rules))
            self._draft(clock)
        outcome = Outcome(
            tree=self._tree,
            draft_s=self._draft_s,
            draft_forwards=self._draft_forwards,
            knobs=self._controller.knobs,
            turned_before=turned,
            round_s=owed_s + clock.seconds(),
        )
        clock.leave_out(at_stage("drafted", outcome))
        told = self._fly(outcome, clock)
        owed_s -= self._draft_s
        outcome.accepted, outcome.target_forwards, outcome.commit_s = told.accepted, 1, 0.0
        burst = [*(outcome.tree.tokens[node] for node in told.accepted), told.bonus]
        outcome.committed, outcome.finished = self._budget.cut(burst)
        self._text.extend(outcome.committed)
        outcome.round_s = owed_s + clock.seconds()
        clock.leave_out(at_stage("verified", outcome))
        outcome.turned_after = self._learn(outcome)
        if outcome.finished:
            owed_s += self._draft_s
            self._charge_draft(outcome)
            self.close()
        outcome.round_s = owed_s + clock.seconds()
        return outcome

    def close(self) -> None:
        """Gives the seat back."""
        if self._seated:
            self._pair.seats.give_back(self._seat)
            self._seated = False

    def _draft(self, clock: Clock) -> None:
        """Drafts the tree that is verified next, and waits for it."""
        seat, given = self._seat, shape(self._controller.rules)
        before_s = seat.capturing_s
        drafting = seat.drafting(given, len(self._text))
        clock.leave_out(seat.capturing_s - before_s)
        begun = Mark(self._pair.target.device)
        drafting()
        arrival = seat.mailboxes[0].send(seat.board.report)
        self._tree = drafted(seat.mailboxes[0].receive(arrival), self._text[-1])
        self.waits += 1
        self._draft_s += arrival.seconds_since(begun)
        self._draft_forwards += given.deepest

    def _fly(self, outcome: Outcome, clock: Clock) -> Verified:
        """Verifies and commits on the device, drafts the next tree there, and waits for news of both."""
        seat, given, tree = self._seat, shape(self._controller.rules), outcome.tree
        before_s = seat.capturing_s
        verification = seat.verification(bucket(len(tree)), given.deepest, len(self._text), drafts=True)
        drafting = seat.drafting(given, len(self._text) + max(tree.depths) + 1)
        clock.leave_out(seat.capturing_s - before_s)
        begun = Mark(self._pair.target.device)
        verification()
        committed = Mark(self._pair.target.device)
        goes_on = len(self._text) + 1 < self._longest
        if goes_on:
            drafting()
        arrival = seat.mailboxes[0].send(seat.board.report)
        report = seat.mailboxes[0].receive(arrival)
        self.waits += 1
        outcome.verify_s = committed.seconds_since(begun)
        self._draft_s, self._draft_forwards = arrival.seconds_since(committed), given.deepest * goes_on
        told = verified(report)
        self._tree = drafted(report, told.bonus)
        return told

    def _charge_draft(self, outcome: Outcome) -> None:
        """A tree that nobody verifies any more was paid for all the same."""
        outcome.draft_s = (outcome.draft_s or 0.0) + self._draft_s
        outcome.draft_forwards = (outcome.draft_forwards or 0) + self._draft_forwards
        self._draft_s, self._draft_forwards = 0.0, 0

    def _learn(self, outcome: Outcome) -> list[Turned]:
        if len(outcome.tree) == 1:
            return []
        share = depth_acceptance(outcome.tree.parents, outcome.accepted, root_is_drafted=False)
        return self._controller.learn(share)

    def _hand_over(self, turns: tuple[Turn, ...], turned: list[Turned], at_stage: AtStage) -> Outcome:
        """Goes on as `TreeSession`, which reads the text anew."""
        self.close()
        left = replace(self._config, max_new_tokens=self._longest - len(self._text))
        self._instead = TreeSession(self._pair, self._text, left, self._controller.rules)
        # What history and the user have done so far goes on from there.
        self._instead._controller = self._controller  # noqa: SLF001 - a session in place of this one
        read_s = self._instead.prefill()
        outcome = self._instead.step(turns, at_stage)
        outcome.turned_before = turned
        outcome.round_s += self._draft_s + read_s
        self._charge_draft(outcome)
        return outcome

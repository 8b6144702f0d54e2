"""A session whose rounds run on the device; the host waits for the device once per round.

While the device verifies one tree, the next work is already queued: the draft of the next tree, or, in rounds without a
draft, the next verification. After the wait for a verification and the next draft, the host first reads only whether
the text goes on and how many rows the next verification has, and queues the next verification at once. While the device
works, the host builds the tree, learns from the round, and reports the round to its caller. If the user turns a knob
before the next round, the queued verification is undone and the tree is drafted again. If the rules no longer fit
tensors of fixed shapes, a session driven by the host decodes the rest of the text.

If there is no draft model, the host drafts the trees by suffix lookup, whose index stays on the host: after the wait
for a verification, the host extends the index, grows the next tree, and queues the copy of this tree to the device and
its verification. The host grows trees under its own knobs; the device applies the history rule to a copy of the same
knobs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from decoder.draft.lookup import LookupDrafter
from decoder.draft.tree_size.plan import TreePlan, ranks
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.models.pair import Pair
from decoder.sampling.noise import GumbelNoise
from decoder.sampling.settings import Schedule
from decoder.session.cuda_graph.device_state import LEVEL, drafted, drafted_nodes, node_lines, verified
from decoder.session.cuda_graph.pending_rounds import PendingRound, PendingRounds
from decoder.session.cuda_graph.slots import AHEAD, GraphSlots
from decoder.session.cuda_graph.static_shapes import MOST_NODES, Shape, beam, fits, shape, sizes_of_rounds
from decoder.session.protocol import AtStage, Outcome, Session, TokenLimit, go_on, learnt
from decoder.session.steering import KnobState, Turn
from decoder.system.device import Outbox, without_gradients
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule
from decoder.verify.verifier import device_verifier

Open = Callable[[Sequence[int], int, KnobState | None], Session]
"""(text, maximum number of new tokens, knobs) -> a session that decodes the rest of the text."""


@dataclass(frozen=True)
class _Draft:
    shape: Shape
    plan: TreePlan | None
    """Size of the tree, if costs determined it for this round."""
    own: bool
    """Whether the tree also has the draft's unmodified log-probabilities; see `drafted`."""

    @property
    def most(self) -> int | None:
        """Number of nodes below the root if costs chose it, else None."""
        return self.plan.nodes - 1 if self.plan else None

    def rows(self, nodes: int) -> int:
        """Rows of the verification of a tree of `nodes` nodes. If costs chose a size, its number of rows is used for
        smaller trees too, so that few graphs are captured.
        """
        return self.plan.nodes if self.plan else nodes


class GraphSession(Session):
    """Decoding as in `HostSession`, with rounds on the device. A round's time includes the draft of its tree, even if
    this draft ran during the previous round; the commit is part of the verification. The session keeps a slot until the
    text ends. The rules must fit tensors of fixed shapes; if they no longer fit after the user turns a knob, `reopen`
    opens a session on the host for the rest of the text. If `sizes` is None, the rules alone determine tree sizes.
    """

    def __init__(
        self,
        pair: Pair,
        graph_slots: GraphSlots,
        prompt_ids: Sequence[int],
        max_new_tokens: int,
        knobs: KnobState | None,
        reopen: Open,
        sizes: PlanController | None,
        sampling: Schedule,
        seed: int,
    ) -> None:
        self.text = list(prompt_ids)
        self._pair = pair
        self._slots = graph_slots
        self._reopen = reopen
        self._knobs = knobs
        self._sizes = sizes
        self._sampling = sampling
        self._seed = seed
        self._followed: int | None = None
        """Value of `Schedule.turns` at the last copy of the sampling settings to the device; None before any copy."""
        self._limit = TokenLimit(pair.eos, max_new_tokens)
        self._longest = len(prompt_ids) + max_new_tokens
        self._slot = graph_slots.take(pair, self._longest)
        self._has_slot = True
        self._pending = PendingRounds(self._slot)
        self._tree = TokenTree([self.text[-1]])
        self._draft: _Draft | None = None
        """Draft of the current tree; None for a round without a draft, whose tree has only the root."""
        self._verification: PendingRound | None = None
        """Verification of the current tree, if it is already queued."""
        self._read = len(prompt_ids) - 1
        """Number of tokens of the text that the draft model has read."""
        self._observation: tuple[TreePlan, list[int]] | None = None
        """Size of the last tree, and ranks of its accepted nodes, until the acceptance model has learned from them."""
        self._untaught: tuple[TreePlan | None, Outcome] | None = None
        """Tree size and outcome of the latest round, until `_sizes` has learnt the round's times."""
        self._draft_s, self._draft_forwards = 0.0, 0
        """Seconds and forward passes of drafting that the figures of the rounds so far do not include."""
        self._instead: Session | None = None

    @without_gradients()
    def prefill(self) -> float:
        """Reads the prompt without its last token, then drafts the first tree. The returned seconds do not include this
        draft: its time is part of the first round.
        """
        self._pending.clock.resume()
        begun = self._slot.mark()
        self._slot.begin(self.text, self._knobs.rule if self._knobs else None)
        self._follow()
        done = self._slot.mark()
        done.wait()
        self._draft = self._next_draft() if self._slot.drafts_after(len(self.text)) else None
        if self._draft:
            self._draft_again(self._draft)
        self._pending.clock.stop()
        return done.seconds_since(begun)

    @without_gradients()
    def step(self, turns: tuple[Turn, ...], at_stage: AtStage = go_on) -> Outcome:
        if self._instead:
            return self._instead.step(turns, at_stage)
        self._slots.settle(self.text)
        clock = self._pending.clock
        begun_s = clock.resume() - self._draft_s
        self._teach_times()
        self._follow()
        turned = self._knobs.apply(turns) if self._knobs else []
        if self._knobs and turned:
            if not fits(self._knobs.rule):
                return self._hand_over(turns, turned, at_stage)
            self._turn()
        outcome = Outcome(
            tree=self._tree,
            draft_s=self._draft_s,
            draft_forwards=self._draft_forwards,
            knobs=self._knobs.adaptive if self._knobs else None,
            rules=self._knobs.rules if self._knobs else None,
            room=self._pair.context - len(self.text),
            turned_before=turned,
            round_s=clock.seconds() - begun_s,
        )
        clock.leave_out(at_stage("drafted", outcome))
        plan = self._draft.plan if self._draft else None
        self._launch(outcome)
        begun_s += self._draft_s
        outcome.round_s = clock.seconds() - begun_s
        clock.leave_out(at_stage("verified", outcome))
        if outcome.finished:
            begun_s -= self._draft_s
            self._charge_draft(outcome)
            self.close()
        outcome.round_s = clock.seconds() - begun_s
        if self._sizes and not turned:
            self._untaught = plan, outcome
        clock.stop()
        return outcome

    @without_gradients()
    def prepare(self) -> str:
        """Captures one CUDA graph that the text needs at its present length or within the next `AHEAD` tokens."""
        if not self._has_slot:
            return ""
        expected = sizes_of_rounds(self._knobs.rule if self._knobs else None, drafts=not self._pair.looks_up)
        return self._slot.capture_one(expected, (len(self.text), min(len(self.text) + AHEAD, self._longest)))

    def close(self) -> None:
        self._teach_times()
        if self._has_slot:
            self._slots.give_back(self._slot)
            self._has_slot = False

    def _teach_times(self) -> None:
        """Lets `_sizes` learn the latest round's times, unless the caller of `step` has recorded a stall."""
        if self._untaught and self._sizes:
            plan, outcome = self._untaught
            if not outcome.stalled_s:
                self._sizes.record_times(plan, outcome.draft_s or 0.0, outcome.verify_s or 0.0, outcome.round_s)
        self._untaught = None

    def _follow(self) -> None:
        """Copies changed sampling settings to the device for the positions after the text; settings of positions that
        are being computed never change.
        """
        end = len(self.text)
        if self._followed != self._sampling.turns:
            self._slot.state.sampling.follow(self._seed, self._sampling, end)
            self._followed = self._sampling.turns
        self._slot.verifier = device_verifier(self._sampling, end)

    def _turn(self) -> None:
        """Copies the knobs to the device; a tree that was drafted with the old values is drafted again."""
        if self._knobs:
            self._slot.state.rule.turn(self._knobs.rule)
        if self._draft:
            if self._verification:
                self._slot.state.withdraw(len(self.text), drafted=self._draft.rows(len(self._tree)) > 1)
                self._verification = None
            self._tree, self._draft = TokenTree([self.text[-1]]), self._next_draft()
            if self._draft:
                self._draft_again(self._draft)

    def _next_draft(self) -> _Draft | None:
        """The draft of the next round; None for a round without a draft."""
        if self._knobs is None:
            return None
        rule = self._knobs.rule
        greedy = self._sampling.greedy_from(len(self.text))
        own = not greedy or rule.growth.sharpness != 1
        if self._sizes is None:
            return _Draft(shape(rule), None, own)
        if self._observation:
            self._sizes.learn(*self._observation)
            self._observation = None
        plan = self._sizes.choose(int(rule.growth.deepest))
        return _Draft(beam(rule, plan.depth), plan, own) if plan else None

    def _draft_again(self, draft: _Draft) -> None:
        pending = self._pending.draft(draft.shape, len(self.text), draft.most)
        self._tree = drafted(self._pending.wait(self._pending.report()), self.text[-1], own=draft.own)
        self._read = len(self.text)
        self._draft_s += pending.seconds
        self._draft_forwards += draft.shape.deepest

    def _launch(self, outcome: Outcome) -> None:
        """Verifies and commits the tree, queues the next draft, waits once, and queues the next verification."""
        tree, draft = outcome.tree, self._draft
        rows, deepest = draft.rows(len(tree)) if draft else 1, self._deepest
        pending = self._verification or self._pending.verification(rows, len(self.text), deepest)
        length = len(self.text) + max(tree.depths) + 1
        follows, drafting, ahead, caught_up, goes_on = None, None, None, False, len(self.text) + 1 < self._longest
        if goes_on:
            follows = self._next_draft()
        if follows:
            caught_up = not draft and length - self._read > self._slot.draft.first
            if caught_up:
                self._slot.catch_up(self._read, len(self.text))
            drafting = self._pending.draft(follows.shape, length, follows.most)
        # Draft and verification write different parts of the report, so one copy to the host has both results.
        arrival = self._pending.report()
        if goes_on and not follows:
            ahead = self._pending.verification(1, length)
        report = self._pending.wait(arrival)
        bonus = self._commit(outcome, report)
        if follows and not outcome.finished:
            self._slot.verifier = device_verifier(self._sampling, len(self.text))
            ahead = self._pending.verification(follows.rows(drafted_nodes(report)), len(self.text), deepest)
        self._verification = ahead
        # The host's work below overlaps with the next verification.
        if ahead:
            self._slots.ahead = self.text, ahead.done
        outcome.target_forwards, outcome.verify_s, outcome.commit_s = 1, pending.seconds, 0.0
        if draft:
            self._read = len(self.text) - self._slot.draft.unread(len(outcome.committed))
            self._observation = (draft.plan, ranks(tree.path_logprobs, outcome.accepted)) if draft.plan else None
        if follows:
            self._read = len(self.text)
        self._draft = follows
        self._tree = drafted(report, bonus, own=follows.own) if follows else TokenTree([bonus])
        self._draft_s = drafting.seconds if drafting else 0.0
        self._draft_forwards = follows.shape.deepest + caught_up if follows else 0
        outcome.turned_after = learnt(self._knobs, outcome)

    @property
    def _deepest(self) -> int:
        return int(self._knobs.rule.growth.deepest) if self._knobs else 0

    def _commit(self, outcome: Outcome, report: NDArray[np.float64]) -> int:
        """Appends the committed tokens to the text; returns the token after the last accepted node."""
        outcome.accepted, bonus = verified(report, len(outcome.tree))
        outcome.committed, outcome.finished = self._limit.cut(
            [*(outcome.tree.tokens[node] for node in outcome.accepted), bonus]
        )
        self.text.extend(outcome.committed)
        return bonus

    def _charge_draft(self, outcome: Outcome) -> None:
        """Adds to `outcome` the drafts that no round's figures include yet, even if their trees are never verified."""
        outcome.draft_s = (outcome.draft_s or 0.0) + self._draft_s
        outcome.draft_forwards = (outcome.draft_forwards or 0) + self._draft_forwards
        self._draft_s, self._draft_forwards = 0.0, 0

    def _hand_over(self, turns: tuple[Turn, ...], turned: list[Turn], at_stage: AtStage) -> Outcome:
        """Decodes this round and the rest of the text with a session driven by the host."""
        self.close()
        self._instead = self._reopen(self.text, self._longest - len(self.text), self._knobs)
        self.text = self._instead.text
        read_s = self._instead.prefill()
        outcome = self._instead.step(turns, at_stage)
        outcome.turned_before = turned
        outcome.round_s += self._draft_s + read_s
        self._charge_draft(outcome)
        return outcome


class LookupSession(GraphSession):
    """`GraphSession` of a pair without a draft model: the host drafts each tree after the previous round, and a round's
    time includes the draft of its tree.
    """

    _knobs: KnobState

    @cached_property
    def _drafter(self) -> LookupDrafter:
        device = self._pair.target.device
        return LookupDrafter(GumbelNoise(self._seed, self._sampling, self._pair.vocabulary, device))

    @cached_property
    def _outbox(self) -> Outbox:
        return Outbox(self._pair.target.device, LEVEL + 1, MOST_NODES)

    def prefill(self) -> float:
        """The returned seconds include the indexing of the prompt."""
        begun_s = time.perf_counter()
        self._drafter.read(self.text[:-1])
        indexed_s = time.perf_counter() - begun_s
        return indexed_s + super().prefill()

    def _draft_again(self, draft: object) -> None:
        """First waits for the copy of the previous tree, which may still be in progress after a knob change."""
        del draft
        self._pending.wait(self._pending.report())
        self._propose()

    def _launch(self, outcome: Outcome) -> None:
        pending = self._verification or self._verify()
        self._commit(outcome, self._pending.wait(self._pending.report()))
        outcome.target_forwards, outcome.verify_s, outcome.commit_s = 1, pending.seconds, 0.0
        # The next tree grows under the knobs that the history rule sets after this round.
        outcome.turned_after = learnt(self._knobs, outcome)
        self._draft_s, self._verification = 0.0, None
        if not outcome.finished:
            self._slot.verifier = device_verifier(self._sampling, len(self.text))
            # The host has waited for the verification of the previous tree, so the copy of the previous tree has ended.
            self._propose()
            self._verification = self._verify()
            self._slots.ahead = self.text, self._verification.done

    def _propose(self) -> None:
        begun_s = self._pending.clock.seconds()
        self._tree = self._drafter.propose(self.text, self._knobs.rule, self._pair.context - len(self.text)).tree
        self._outbox.send(node_lines(self._tree), self._slot.state.nodes[: LEVEL + 1])
        self._draft_s += self._pending.clock.seconds() - begun_s

    def _verify(self) -> PendingRound:
        return self._pending.verification(len(self._tree), len(self.text), self._deepest)


def session_class(pair: Pair, knobs: KnobState | None) -> type[GraphSession]:
    return LookupSession if pair.looks_up and knobs else GraphSession


def runs_on_device(pair: Pair, rule: TreeRule | None) -> bool:
    """Whether rounds under `rule` (None: rounds without a draft) can run on the device. Trees from suffix lookup with
    sizes chosen by costs cannot: the trees may be too deep, and costs are measured on the host.
    """
    return fits(rule) and not (pair.looks_up and rule and rule.budget.by_cost)

"""A session on the device without a draft model: the host drafts the trees by suffix lookup.

The index of the text stays on the host. After the wait for a verification, the host extends the index, grows the next
tree, and queues the copy of this tree to the device and its verification. The host grows trees under its own knobs; the
device applies the history rule to a copy of the same knobs. This module is independent of draft models.
"""

import time
from functools import cached_property

from decoder.draft.lookup import LookupDrafter
from decoder.models.pair import Pair
from decoder.sampling.noise import GumbelNoise
from decoder.session.cuda_graph.device_state import LEVEL, node_lines
from decoder.session.cuda_graph.pending_rounds import PendingRound
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.static_shapes import MOST_NODES, fits
from decoder.session.protocol import Outcome, learnt
from decoder.session.steering import KnobState
from decoder.system.device import Outbox
from decoder.tree_rules import TreeRule
from decoder.verify.verifier import device_verifier


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
    """Whether rounds under `rule` can run on the device; None stands for rounds without a draft. They cannot if costs
    choose the sizes of trees from suffix lookup: these trees may be too deep, and costs are measured on the host.
    """
    return fits(rule) and not (pair.looks_up and rule and rule.budget.by_cost)

"""Tree size of the method `auto` on a device, where a whole round is planned ahead.

A captured graph drafts all levels at once, so a round is chosen from a grid of sizes by what such rounds have taken and
brought so far. A probe is a small draft here. What a round has brought is known when the next but one is chosen.
"""

from collections.abc import Sequence
from functools import cached_property

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.draft.tree_size.loss_limit import LossLimit
from decoder.draft.tree_size.plan import DEPTHS, SIZES, Plan

FADED = 0.5
"""Share of what was seen that counts in a probe, and on another text."""
HELD = 4
"""Further rounds of a size that was found best."""
PROBE = Plan(1, 4)
PROBES = 2
"""Rounds of a probe: the first one's outcome is known when the second is under way."""


class PlanController:
    """Chooses the size of each round of one text."""

    def __init__(self, costs: PlanCosts, acceptance: AcceptanceModel) -> None:
        """Begins a text, which adds to the costs and to what is known of the draft's guesses."""
        self.costs = costs
        self.acceptance = acceptance
        acceptance.paths.fade(FADED)
        self._missed = 0
        """Plain rounds since the last draft."""
        self._probing = 0
        """Rounds of a probe that are still to be chosen."""
        self._awaited = self._hits = 0
        """Undecided rounds of the probe, and those with a right guess."""
        self._held: tuple[Plan, int] | None = None
        """The best size, and how many more rounds may take it."""

    @cached_property
    def credit(self) -> LossLimit:
        """Made as soon as rounds were timed."""
        return LossLimit(self.costs, self.acceptance)

    def choose(self, deepest: int) -> Plan | None:
        """The size of the next round, no node of which may be deeper; None: no draft."""
        plan = self._chosen(deepest) if self.costs.known else PROBE
        if plan is None:
            self._missed += 1
            self.credit.wait(1)
        else:
            self._missed = 0
        return plan

    def _chosen(self, deepest: int) -> Plan | None:
        if self.credit.probe_due(self._missed + 1):
            self.acceptance.paths.fade(FADED)
            # Where no draft could pay by the times that are known, one round looks at them again.
            self._probing = self._awaited = PROBES if self.credit.could_pay else 1
            self._hits, self._held = 0, None
        if self._probing:
            self._probing -= 1
            return PROBE
        if not self.credit.may_draft:
            self._held = None
            return None
        if self._held and self._held[1]:
            plan, left = self._held
            self._held = plan, left - 1
            return Plan(min(plan.depth, deepest), plan.nodes)
        best = self._most_worth(deepest)
        self._held = (best, HELD) if best else None
        return best

    def learn(self, plan: Plan, ranks: Sequence[int]) -> None:
        """Records which nodes of a round of this size were accepted, by their ranks from 1."""
        self.acceptance.paths.learn(plan, ranks)
        for right in [1.0] * len(ranks) + [0.0] * (len(ranks) < plan.depth):
            self.acceptance.see([right], 1)
        if not self.costs.known:
            return
        self.credit.earn(1 + len(ranks), self.costs.round_s(plan))
        if self._awaited:
            self._awaited -= 1
            self._hits += bool(ranks)
            if not self._awaited:
                self.credit.probed(self._hits / PROBES)

    def timed(self, plan: Plan | None, draft_s: float, verify_s: float, round_s: float) -> None:
        """Records the times of a round, in seconds."""
        self.costs.learn(plan, draft_s, verify_s, round_s)

    def _most_worth(self, deepest: int) -> Plan | None:
        """The size that brings most tokens beyond the price of its time; None: no draft does."""
        price = self.credit.price
        limit_s = (1 + self.credit.stake) * self.costs.plain_s()
        deepest = min(deepest, DEPTHS[-1])
        expected = self.acceptance.paths.expected(deepest)
        best, worth = None, 1 - price * self.costs.plain_s()
        for depth in sorted({min(depth, deepest) for depth in DEPTHS}):
            for index, nodes in enumerate(SIZES):
                plan = Plan(depth, nodes)
                seconds = self.costs.round_s(plan)
                net = 1 + expected[depth][index] - price * seconds
                if net > worth and seconds <= limit_s:
                    best, worth = plan, net
        return best

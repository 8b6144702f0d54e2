"""Tree size of `auto` with CUDA graphs, which draft all levels at once: the size is chosen before drafting, and before
the previous round's result is known. A probe is one or two rounds with a small draft.
"""

from collections.abc import Sequence
from functools import cached_property

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.draft.tree_size.loss_limit import LossLimit
from decoder.draft.tree_size.plan import DEPTHS, SIZES, TreePlan

FADED = 0.5
"""Factor on earlier observations at a probe and at the start of a text."""
ROUNDS_OF_A_PLAN = 4
"""Number of further rounds that use the chosen size without a new choice."""
PROBE = TreePlan(DEPTHS[0], SIZES[0])
PROBES = 2
"""Number of rounds in a probe; the result of the first round is known while the second round runs."""


class PlanController:
    def __init__(self, costs: PlanCosts, acceptance: AcceptanceModel) -> None:
        self.costs = costs
        self.acceptance = acceptance
        acceptance.paths.fade(FADED)
        self._missed = 0
        """Number of plain rounds since the last round with a draft."""
        self._probing = 0
        """Number of rounds of the probe that have not begun."""
        self._awaited = 0
        """Number of rounds of the probe whose result is not known yet."""
        self._hits = 0
        """Number of rounds of the probe with an accepted token."""
        self._plan_in_use: tuple[TreePlan, int] | None = None
        """The size chosen last, and the number of further rounds that use it."""

    @cached_property
    def credit(self) -> LossLimit:
        """Created when the first times are known, since it depends on them."""
        return LossLimit(self.costs, self.acceptance)

    def choose(self, deepest: int) -> TreePlan | None:
        """Returns the size of the next round; None for a round without a draft."""
        plan = self._plan(deepest) if self.costs.known else _probe(deepest)
        if plan is None:
            self._missed += 1
            self.credit.wait(1)
        else:
            self._missed = 0
        return plan

    def _plan(self, deepest: int) -> TreePlan | None:
        if self.credit.probe_due(self._missed + 1):
            self.acceptance.paths.fade(FADED)
            # If drafting could not pay at the known times, the probe is a single round, which measures the times again.
            self._probing = self._awaited = PROBES if self.credit.could_pay else 1
            self._hits, self._plan_in_use = 0, None
        if self._probing:
            self._probing -= 1
            return _probe(deepest)
        if not self.credit.may_draft:
            self._plan_in_use = None
            return None
        if self._plan_in_use and self._plan_in_use[1]:
            plan, left = self._plan_in_use
            self._plan_in_use = plan, left - 1
            return TreePlan(min(plan.depth, deepest), plan.nodes)
        best = self._most_worth(deepest)
        self._plan_in_use = (best, ROUNDS_OF_A_PLAN) if best else None
        return best

    def learn(self, plan: TreePlan, ranks: Sequence[int]) -> None:
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
                self.credit.record_probe(self._hits / PROBES)

    def record_times(self, plan: TreePlan | None, draft_s: float, verify_s: float, round_s: float) -> None:
        self.costs.learn(plan, draft_s, verify_s, round_s)

    def _most_worth(self, deepest: int) -> TreePlan | None:
        """The size with the most expected tokens minus the price of its time; None if plain decoding is better."""
        price = self.credit.price
        limit_s = (1 + self.credit.stake) * self.costs.plain_s()
        deepest = min(deepest, DEPTHS[-1])
        expected = self.acceptance.paths.expected(deepest)
        best, worth = None, 1 - price * self.costs.plain_s()
        for depth in sorted({min(depth, deepest) for depth in DEPTHS}):
            for index, nodes in enumerate(SIZES):
                plan = TreePlan(depth, nodes)
                seconds = self.costs.round_s(plan)
                net = 1 + expected[depth][index] - price * seconds
                if net > worth and seconds <= limit_s:
                    best, worth = plan, net
        return best


def _probe(deepest: int) -> TreePlan:
    return TreePlan(min(PROBE.depth, deepest), PROBE.nodes)

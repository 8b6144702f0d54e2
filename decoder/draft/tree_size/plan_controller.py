"""Tree size of the method `auto` with CUDA graphs, where a round's size is chosen before drafting.

A graph drafts all levels at once, so each round's size is chosen in advance from a grid. The choice depends on the
times and accepted tokens of earlier rounds. A probe is one or two rounds with a small draft. The size of a round is
chosen before the result of the previous round is known.
"""

from collections.abc import Sequence
from functools import cached_property

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.draft.tree_size.loss_limit import LossLimit
from decoder.draft.tree_size.plan import DEPTHS, SIZES, Plan

FADED = 0.5
"""Factor on the weight of earlier observations at a probe and at the start of a text."""
ROUNDS_OF_A_PLAN = 4
"""Number of further rounds in which the best size is used without a new choice."""
PROBE = Plan(DEPTHS[0], SIZES[0])
PROBES = 2
"""Number of rounds in a probe; the result of the first round is known while the second round runs."""


class PlanController:
    """Chooses the size of each round of one text, from `DEPTHS` and `SIZES`."""

    def __init__(self, costs: PlanCosts, acceptance: AcceptanceModel) -> None:
        """Begins a text; the rounds of the text update `costs` and `acceptance`."""
        self.costs = costs
        self.acceptance = acceptance
        acceptance.paths.fade(FADED)
        self._missed = 0
        """Number of plain rounds since the last round with a draft."""
        self._probing = 0
        """Number of rounds of the probe that have not begun."""
        self._awaited = self._hits = 0
        """Number of the probe's rounds whose result is not known yet, and number of the probe's rounds with an accepted
        guess.
        """
        self._plan_in_use: tuple[Plan, int] | None = None
        """Best size, and number of further rounds that use it."""

    @cached_property
    def credit(self) -> LossLimit:
        """Loss limit of the text; created when the first times are known, since it depends on them."""
        return LossLimit(self.costs, self.acceptance)

    def choose(self, deepest: int) -> Plan | None:
        """Chooses the size of the next round, with at most `deepest` levels; None for a round without a draft."""
        plan = self._plan(deepest) if self.costs.known else _probe(deepest)
        if plan is None:
            self._missed += 1
            self.credit.wait(1)
        else:
            self._missed = 0
        return plan

    def _plan(self, deepest: int) -> Plan | None:
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
            return Plan(min(plan.depth, deepest), plan.nodes)
        best = self._most_worth(deepest)
        self._plan_in_use = (best, ROUNDS_OF_A_PLAN) if best else None
        return best

    def learn(self, plan: Plan, ranks: Sequence[int]) -> None:
        """Updates acceptance and credit with a round's accepted nodes, given as ranks; see `PathProbabilities`."""
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

    def record_times(self, plan: Plan | None, draft_s: float, verify_s: float, round_s: float) -> None:
        """Updates the costs with a round's times, in seconds."""
        self.costs.learn(plan, draft_s, verify_s, round_s)

    def _most_worth(self, deepest: int) -> Plan | None:
        """Size that maximises expected tokens minus the price of the round's time; None if plain decoding is better."""
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


def _probe(deepest: int) -> Plan:
    return Plan(min(PROBE.depth, deepest), PROBE.nodes)

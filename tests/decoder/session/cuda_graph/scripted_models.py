"""Random sizes of rounds, so that tests do not depend on measured times."""

import random
from collections.abc import Sequence

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.draft.tree_size.plan import SIZES, TreePlan
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.methods.auto import Auto

WIDE = Auto(d_max=6, d0=5, rho_deep=0.0, history=False)


class RandomSizes(PlanController):
    """Chooses random sizes and records the choices and results."""

    def __init__(self, seed: int, *, plain: float = 0.4, depths: Sequence[int] = (1, 2, 3, 4, 6)) -> None:
        super().__init__(PlanCosts(), AcceptanceModel())
        self._random = random.Random(seed)
        self._plain, self._depths = plain, depths
        self.chosen: list[TreePlan | None] = []
        self.learnt: list[tuple[TreePlan, Sequence[int]]] = []

    @classmethod
    def scripted(cls, plans: Sequence[TreePlan | None]) -> "RandomSizes":
        """Chooses these plans one after the other."""
        made, order = cls(0), list(plans)
        made.choose = lambda _: order.pop(0)  # type: ignore[method-assign, assignment]
        return made

    def learn(self, plan: TreePlan, ranks: Sequence[int]) -> None:
        self.learnt.append((plan, ranks))

    def choose(self, deepest: int) -> TreePlan | None:
        rests = self._random.random() < self._plain
        plan = (
            None if rests else TreePlan(min(deepest, self._random.choice(self._depths)), self._random.choice(SIZES[:4]))
        )
        self.chosen.append(plan)
        return plan

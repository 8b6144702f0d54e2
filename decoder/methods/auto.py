"""auto: an adaptive tree of as many nodes as pay, by what a round was measured to cost."""

from dataclasses import dataclass

from decoder.events import Limit
from decoder.methods.adaptive import AdaptiveTree
from decoder.methods.method import Method
from decoder.methods.option import any_knobs
from decoder.tree_rules import MOST_NODES, TreeRule


@dataclass(frozen=True)
class Auto(AdaptiveTree):
    """The bounds within which each round drafts as many nodes as pay (`decoder.draft.tree_size`); wide by default."""

    d0: float = 8.0
    d_max: int = 12
    rho_stop: float = 0.0
    tau: float = 0.0

    def rule(self) -> TreeRule[float]:
        """How trees grow, as far as costs allow."""
        return self._rule(MOST_NODES, best=True, by_cost=True)

    def limit(self, depth: int, chance: float) -> Limit:
        """Which of these rules refused children to a leaf of this depth and path probability."""
        return self._limit(depth, chance) or "cost"


_KNOBS = ", ".join(knob.name for knob in Auto.knobs)
METHOD = Method(
    "auto",
    "adaptive tree of as many nodes as pay",
    Auto(),
    races=True,
    options=(
        any_knobs(
            "auto",
            f"Bounds within which auto drafts what pays, for example d0=6,b_max=4; of {_KNOBS}.",
            Auto(),
            example="d0=6",
            rank=1,
        ),
    ),
)

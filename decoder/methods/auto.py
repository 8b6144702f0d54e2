"""auto: an adaptive tree whose number of nodes is chosen by expected tokens and measured costs."""

from dataclasses import dataclass
from typing import ClassVar

from decoder.events import Limit
from decoder.knobs import KnobInfo
from decoder.methods.adaptive import AdaptiveTree
from decoder.methods.method import Method, Sweep, any_knobs
from decoder.tree_rules import MOST_NODES, Budget, TreeRule


@dataclass(frozen=True)
class Auto(AdaptiveTree):
    """Wide bounds of trees. Within these bounds, `decoder.draft.tree_size` chooses the size of each round's tree."""

    d0: float = 8.0
    d_max: int = 12
    rho_stop: float = 0.0
    tau: float = 0.0
    history: bool = False
    lookup: bool = True
    """Whether suffix lookup also drafts, in rounds in which lookup is expected to be faster."""

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        *AdaptiveTree.knobs,
        KnobInfo("lookup", "lookup", "suffix lookup also drafts tokens", "switch", lambda _: (0.0, 1.0), coarse=1,
                 values={"off": False, "on": True}),
    )  # fmt: skip

    def rule(self) -> TreeRule:
        return self._rule(Budget(MOST_NODES, best=True, by_cost=True, lookup=self.lookup))

    def limit(self, depth: int, probability: float) -> Limit:
        return self._limit(depth, probability) or "cost"


_KNOBS = ", ".join(knob.name for knob in Auto.knobs)
METHOD = Method(
    "auto",
    "adaptive tree whose size is chosen by cost",
    Auto(),
    races=True,
    options=(
        any_knobs(
            "auto",
            f"Values of knobs that bound the trees of auto, for example d0=6,b_max=4. Knobs: {_KNOBS}.",
            Auto(),
            example="d0=6",
            rank=1,
        ),
    ),
    sweep=Sweep(
        "0|1,..",
        "Whether auto also drafts by suffix lookup: 1 (yes), 0 (no), or 0,1 to compare both.",
        "1",
        "1",
        lambda on: {"lookup": bool(on)},
        lambda on: "" if on else "no lookup",
    ),
)

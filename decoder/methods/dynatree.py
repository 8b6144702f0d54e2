"""dynatree: an adaptive tree as in the DynaTree paper, whose size depends on the method's knobs only, not on costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from decoder.errors import quoted, require
from decoder.events import Limit
from decoder.knobs import KnobInfo, require_feasible
from decoder.methods.adaptive import AdaptiveTree
from decoder.methods.method import N_MAX, Method, Option, preset, whole_numbers
from decoder.tree_rules import Budget, TreeRule

Selection = Literal["bfs", "best"]


@dataclass(frozen=True)
class DynaTree(AdaptiveTree):
    """DynaTree's parameters, with the paper's defaults. Method `alg1` has the same parameters and always selects nodes
    breadth-first.
    """

    n_max: int = 256
    """Largest number of drafted nodes in a tree."""
    selection: Selection = "bfs"
    """Which nodes are kept if the tree has more than `n_max` nodes: `bfs`, the first in breadth-first order, or `best`,
    the most probable.
    """

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        *AdaptiveTree.knobs,
        N_MAX,
        KnobInfo("selection", "choice", "kept: breadth-first or most probable", "switch", lambda _: (0.0, 1.0),
        coarse=1, values={name: name for name in get_args(Selection)}),
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.n_max >= 1, f"n_max is {self.n_max}; give 1 or more", "n_max")
        known = self.selection in get_args(Selection)
        require(known, f"selection is {quoted(self.selection)}; give bfs or best", "selection")
        require_feasible({"n_max": self.n_max})

    def rule(self) -> TreeRule:
        """Growth rule, node budget and history rule of the tree."""
        return self._rule(Budget(self.n_max, best=self.selection == "best"))

    def limit(self, depth: int, probability: float) -> Limit:
        """The parameter that prevents children of a leaf with this depth and path probability."""
        return self._limit(depth, probability) or "n_max"


PRESETS: Mapping[str, DynaTree] = {
    "tuned": DynaTree(
        d0=4, tau_h=0.4, tau_l=0.3, rho_stop=0.3, rho_deep=0.7, tau=0, sharpness=4, history=False, n_max=8,
        selection="best",
    ),
    "paper": DynaTree(),
    "sampled": DynaTree(
        d0=4, tau_h=0.8, tau_l=0.5, rho_stop=0.5, rho_deep=0.7, tau=0, sharpness=3, history=False, n_max=5,
        selection="best",
    ),
}  # fmt: skip
"""Presets of DynaTree's parameters. The default is `tuned` at temperature 0, and `sampled` at temperatures above 0.

Both were chosen on the embedded pair on a CPU, where a drafted node costs about a fifth of a plain pass. So only
probable paths are extended, and nodes have siblings only where the draft is unsure. Changes of D0, tau_h and tau_l have
an effect on these trees. `tuned` was chosen for greedy decoding, `sampled` for temperatures .6 and 1. The history rule
is off, since its target, a depth acceptance of .7, makes trees too shallow.
"""

METHOD = Method(
    "dynatree",
    "adaptive tree, shaped by its knobs",
    PRESETS["tuned"],
    sampled=PRESETS["sampled"],
    presets=PRESETS,
    races=True,
    options=(
        preset(PRESETS, "Initial values of DynaTree's knobs. tuned, the default at temperature 0: values at which D0, "
               "tau_h and tau_l all have an effect. sampled, the default above temperature 0: values for sampled "
               "tokens. paper: the published values."),
        Option("tau_h", float, "P", "The draft is confident if its best guess is at least this probable."),
        Option("tau_l", float, "P", "The draft is unsure if its best guess is less probable than this."),
        Option("d0", float, "D", "Base depth of the tree."),
        Option("history", bool, "", "Whether the acceptance of past rounds changes D0 and tau_h.", rank=-1),
        Option("d_max", int, "D", "Largest depth of a node."),
        Option("branching", str, "B,B,B", "Three numbers: the children of a node where the draft is confident, "
               "where its confidence is between tau_l and tau_h, and where it is unsure.",
               read=lambda text: {"branching": whole_numbers("--branching", text, example="1,2,3")}),
        Option("rho_stop", float, "P", "Paths that are less probable than this are not extended."),
        Option("rho_deep", float, "P", "At the base depth or deeper, paths that are less probable than this are not "
               "extended."),
        Option("tau", float, "P", "Lower bound on rho_stop."),
        Option("sharpness", float, "S", "Exponent on the draft's probabilities in greedy decoding; 1 is the "
               "paper's rule."),
        Option("n_max", int, "N", "Largest number of drafted nodes in a tree of DynaTree. For trees whose size is "
               "chosen by cost, give --methods auto.",
               instead={"auto": "auto is a method: --methods auto"}),
        Option("selection", str, "NAME", "Which nodes are kept if a tree has more than n_max: bfs (the first in "
               "breadth-first order) or best (the most probable).", choices=get_args(Selection)),
    ),
)  # fmt: skip


def shipped_preset(temperature: float) -> str:
    """Name of DynaTree's default preset at this temperature."""
    usual = METHOD.defaults(temperature)
    return next(name for name, rules in PRESETS.items() if rules == usual)

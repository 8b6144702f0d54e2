"""fixed: a tree of fixed depth and branching."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from decoder.errors import ConfigError, quoted, require
from decoder.events import Limit
from decoder.knobs import HIGHEST_BRANCHING, HIGHEST_DEPTH, KnobInfo, require_feasible
from decoder.methods.method import N_MAX, Method, Option, Sweep, number, whole
from decoder.tree_rules import Budget, Rules, TreeRule, fixed_growth


@dataclass(frozen=True)
class Fixed(Rules):
    """A tree in which each node of depth < `depth` and path probability >= `tau` gets `branching` children."""

    depth: int = 5
    branching: int = 2
    tau: float = 0.05
    n_max: int = 256

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        N_MAX,
        KnobInfo("fixed_depth", "D", "depth of the tree", "whole",
                 lambda own: (1.0, float(max(HIGHEST_DEPTH, own.depth))), turns="depth",
                 keys="-=", brief="depth", key_help="fixed: depth"),
        KnobInfo("fixed_branching", "B", "guesses at each node", "whole",
                 lambda own: (1.0, float(max(HIGHEST_BRANCHING, own.branching))), coarse=2, turns="branching",
                 keys="[]", brief="guesses a node", key_help="fixed: branching"),
        KnobInfo("fixed_tau", "τ", "less probable paths end", "probability", lambda _: (0.0, 1.0), 0.01, 0.05,
                 turns="tau", keys="{}", brief="path at least", key_help="fixed: least path probability"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        require(self.depth >= 1, f"the fixed tree's depth is {self.depth}; give 1 or more")
        require(self.branching >= 1, f"the fixed tree's branching is {self.branching}; give 1 or more")
        require(0 <= self.tau <= 1, f"the fixed tree's tau is {self.tau:g}; give 0 to 1")
        require(self.n_max >= 1, f"n_max is {self.n_max}; give 1 or more")
        large = {"the fixed tree's depth": self.depth, "the fixed tree's branching": self.branching}
        require_feasible({**large, "n_max": self.n_max})

    def rule(self) -> TreeRule:
        """Growth rule and node budget of the tree."""
        return TreeRule(fixed_growth(self.depth, self.tau, self.branching), Budget(self.n_max))

    def limit(self, depth: int, probability: float) -> Limit:
        """The parameter that prevents children of a leaf with this depth and path probability."""
        if depth >= self.depth:
            return "fixed_depth"
        return "fixed_tau" if probability < self.tau else "n_max"


_PARTS: Mapping[str, Callable[[str], float]] = {"depth": whole, "branching": whole, "tau": float, "n_max": whole}
"""Names of the parts of a value of --fixed, in order, and the parser of each part."""


def _read(shape: str) -> Mapping[str, Any]:
    parts = shape.split(",")
    with suppress(ValueError):
        if 2 <= len(parts) <= len(_PARTS):
            return {name: kind(part) for (name, kind), part in zip(_PARTS.items(), parts, strict=False)}
    raise ConfigError(
        f"--fixed is {quoted(shape)}; give depth and branching, and optionally the least path probability and the "
        "largest number of nodes, for example 5,2 or 5,2,0.05,256"
    )


def _written(fixed: Fixed) -> str:
    """Value of --fixed; the default of `n_max` is left out."""
    parts = [str(fixed.depth), str(fixed.branching), number(fixed.tau)]
    return ",".join(parts if fixed.n_max == Fixed.n_max else [*parts, str(fixed.n_max)])


METHOD = Method(
    "fixed",
    "a tree of fixed depth and branching",
    Fixed(),
    races=True,
    options=(
        Option(
            "fixed",
            str,
            "D,B[,P[,N]]",
            "Depth (D) and branching (B) of the fixed tree, the lowest path probability at which a node gets children "
            "(P), and the largest number of nodes (N).",
            tuple(_PARTS),
            _read,
            _written,
        ),
    ),
    sweep=Sweep(
        "DxB,..",
        "Fixed trees to measure, each as depth x branching.",
        f"{Fixed.depth}x{Fixed.branching}",
        "5x2",
        lambda depth, branching: {"depth": depth, "branching": branching},
    ),
)

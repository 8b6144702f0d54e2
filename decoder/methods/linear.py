"""linear: a chain of drafted tokens, as in the original speculative decoding."""

from dataclasses import dataclass
from typing import ClassVar

from decoder.errors import require
from decoder.events import Limit
from decoder.knobs import HIGHEST_DEPTH, KnobInfo, require_feasible
from decoder.methods.method import Method, Sweep
from decoder.methods.option import Option
from decoder.tree_rules import Budget, Rules, TreeRule, fixed_growth


@dataclass(frozen=True)
class Linear(Rules):
    """Parameter of a chain of `k` drafted tokens."""

    k: int = 5

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        KnobInfo("k", "K", "length of the chain", "whole", lambda own: (1.0, float(max(HIGHEST_DEPTH, own.k))),
                 keys="-=", brief="chain length", key_help="linear: chain length"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        require(self.k >= 1, f"K is {self.k}; give 1 or more")
        require_feasible({"K": self.k})

    def rule(self) -> TreeRule:
        """The growth rule of a chain."""
        return TreeRule(fixed_growth(self.k, 0, 1), Budget(self.k))

    def limit(self, depth: int, probability: float) -> Limit:  # noqa: ARG002 - a chain has one limit
        """Limit that ends a chain: the length `k`."""
        return "k"


METHOD = Method(
    "linear",
    "a chain of K drafted tokens",
    Linear(),
    races=True,
    options=(Option("k", int, "K", "Length of linear's chain."),),
    sweep=Sweep("K,K,..", "Lengths of linear's chain to measure.", str(Linear.k), "5", lambda k: {"k": k}),
)

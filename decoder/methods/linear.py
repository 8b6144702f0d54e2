"""linear: a chain of drafted tokens, as in the original speculative decoding."""

from dataclasses import dataclass, replace
from typing import ClassVar

from decoder.errors import require
from decoder.events import Limit
from decoder.knobs import HIGHEST_DEPTH, KnobInfo, require_feasible
from decoder.methods.method import Method, Option, Sweep
from decoder.tree_rules import Budget, Rules, TreeRule, fixed_growth

K = KnobInfo("k", "K", "length of the chain", "whole", lambda own: (1.0, float(max(HIGHEST_DEPTH, own.k))),
             keys="-=", brief="chain length", key_help="linear: chain length")  # fmt: skip
"""Length of the chain; several methods share this knob."""
P_MIN: Limit = "p_min"


@dataclass(frozen=True)
class Linear(Rules):
    """A chain of at most `k` drafted tokens."""

    k: int = 5
    p_min: float = 0.0
    """The chain ends before a token whose probability, given the tokens before it, is below `p_min`. The probabilities
    are those by which the draft ranks tokens (`Round.logprobs`). Same as llama.cpp's `--spec-draft-p-min`.
    """

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        K,
        KnobInfo(P_MIN, "p_min", "ends before less probable tokens", "probability", lambda _: (0.0, 1.0),
                 0.05, 0.2, keys="[]", brief="token at least", key_help="linear: least probability of a token"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        require(self.k >= 1, f"K is {self.k}; give 1 or more")
        require(0 <= self.p_min <= 1, f"p_min is {self.p_min:g}; give 0 to 1", "p_min")
        require_feasible({"K": self.k})

    def rule(self) -> TreeRule:
        """Growth rule and node budget of the chain; `p_min` acts as the confidence below which a node has no child."""
        growth = fixed_growth(self.k, 0, 1)
        # A node has one child if the draft's confidence is at least `p_min`, otherwise none.
        return TreeRule(replace(growth, tau_h=self.p_min, middle=0) if self.p_min else growth, Budget(self.k))

    def limit(self, depth: int, probability: float) -> Limit:
        """The parameter that ended a chain of this depth."""
        del probability
        return P_MIN if depth < self.k and self.p_min else "k"


METHOD = Method(
    "linear",
    "a chain of K drafted tokens",
    Linear(),
    races=True,
    options=(
        Option("k", int, "K", "Length of linear's chain."),
        Option("p_min", float, "P", "The chain of linear ends before a token that is less probable than this by the "
               "draft; 0: it has K tokens."),
    ),
    sweep=Sweep(
        "K[xP],..",
        "Chains of linear to measure, each as length, or as length x p_min.",
        str(Linear.k),
        "5",
        lambda k, p_min=0.0: {"k": k, "p_min": p_min},
        probability=True,
    ),
)  # fmt: skip

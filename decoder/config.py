"""Parameters of every method, validated when they are made, each with how far it can be turned mid-run; presets.

Knows nothing of models. Names and defaults follow the DynaTree paper (section 3 and appendix A). The paper's ablations
need no switches: adaptive breadth is off when the three branchings are equal, adaptive depth when `rho_stop` and
`rho_deep` are 0, history when `history` is False.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

from decoder.errors import quoted, require
from decoder.events import Limit
from decoder.knobs import HIGHEST_BRANCHING, HIGHEST_DEPTH, HIGHEST_NODES, KNOB_GAP, KnobName, Turnable, bounds
from decoder.tree_rules import MOST_NODES, TreeRule, fixed_rule, used_depth

Selection = Literal["bfs", "best"]
MOST = 1 << 12
"""No whole number of the rules is larger: what is kept for a tree, and counted level by level, must stay feasible."""


def _feasible(given: dict[str, int]) -> None:
    for name, value in given.items():
        require(value <= MOST, f"{name} is {value}; give {MOST} or less")


@dataclass(frozen=True)
class AdaptiveTree(Turnable):
    """What decides where an adaptive tree grows: breadth by confidence, depth by path probability, history.

    The defaults are the paper's.
    """

    d0: float = 5.0
    """Base depth: up to floor(d0 + 0.5) levels, a node needs only `rho_stop` to be expanded. History moves it."""
    d_max: int = 8
    """No node is deeper."""
    branching: tuple[int, int, int] = (1, 2, 3)
    """Children of a node where the draft is confident, in between, unsure."""
    tau_h: float = 0.9
    """The draft is confident when its largest probability is at least this. History moves it."""
    tau_l: float = 0.4
    """The draft is unsure when its largest probability is under this."""
    rho_stop: float = 0.1
    """A node whose path is less probable than this is not expanded."""
    rho_deep: float = 0.5
    """From the base depth on, a node's path must be at least this probable."""
    tau: float = 0.05
    """A lower bound on `rho_stop`; in the paper it is the fixed tree's threshold too."""
    history: bool = True
    """Whether past rounds move `d0` and `tau_h`."""
    window: int = 10
    """Rounds that the mean depth acceptance is taken over."""
    target_acceptance: float = 0.7
    """The depth acceptance that history steers towards."""
    eta_d: float = 1.0
    """Step of `d0` per unit of excess depth acceptance."""
    eta_h: float = 0.1
    """Step of `tau_h` per unit of excess depth acceptance."""

    def __post_init__(self) -> None:
        low, mid, high = self.branching
        require(self.d_max >= 2, f"d_max is {self.d_max}; give 2 or more")
        require(1 <= self.d0 <= self.d_max - 1, f"D0 is {self.d0:g}; give 1 to {self.d_max - 1} (D_max - 1)")
        require(
            0 < self.tau_l < self.tau_h <= 1,
            f"tau_l is {self.tau_l:g} and tau_h {self.tau_h:g}; give 0 < tau_l < tau_h <= 1",
        )
        require(
            0 <= self.rho_stop <= self.rho_deep <= 1,
            f"rho_stop is {self.rho_stop:g} and rho_deep {self.rho_deep:g}; give 0 <= rho_stop <= rho_deep <= 1",
        )
        require(1 <= low <= mid <= high, f"branching is {low},{mid},{high}; give three rising numbers from 1 up")
        require(0 <= self.tau <= 1, f"tau is {self.tau:g}; give 0 to 1")
        require(self.window >= 1, f"window is {self.window}; give 1 or more")
        _feasible({"d_max": self.d_max, "the largest branching": high, "window": self.window})

    def moved(self, d0: float, tau_h: float) -> Self:
        """These parameters with the values that history gives them, which lie within their bounds.

        Not by `replace`: checking all parameters anew would take ten times as long, in every round.
        """
        found = object.__new__(type(self))
        vars(found).update(vars(self), d0=d0, tau_h=tau_h)
        return found

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """The knobs and how far each can be turned."""
        low, mid, high = self.branching
        return {
            "tau_h": (min(self.tau_h, self.tau_l + KNOB_GAP), 1.0),
            "tau_l": (min(self.tau_l, KNOB_GAP), max(self.tau_l, self.tau_h - KNOB_GAP)),
            "d0": (1.0, self.d_max - 1.0),
            "history": (0.0, 1.0),
            "d_max": (max(2.0, math.ceil(self.d0) + 1.0), float(max(HIGHEST_DEPTH, self.d_max))),
            "b_min": (1.0, float(mid)),
            "b_mid": (float(low), float(high)),
            "b_max": (float(mid), float(max(HIGHEST_BRANCHING, high))),
            "rho_stop": (0.0, self.rho_deep),
            "rho_deep": (self.rho_stop, 1.0),
            "tau": (0.0, 1.0),
        }

    def _rule(self, n_max: int, *, best: bool, by_cost: bool = False) -> TreeRule[float]:
        return TreeRule(
            deepest=self.d_max,
            stop=max(self.rho_stop, self.tau),
            deep=self.rho_deep,
            d0=self.d0,
            tau_h=self.tau_h,
            tau_l=self.tau_l,
            narrow=self.branching[0],
            middle=self.branching[1],
            wide=self.branching[2],
            n_max=n_max,
            best=best,
            by_cost=by_cost,
            history=self.history,
            window=self.window,
            target=self.target_acceptance,
            eta_d=self.eta_d,
            eta_h=self.eta_h,
        )

    def _limit(self, depth: int, chance: float) -> Limit | None:
        """The rule that refuses children to a node of this depth and path probability; None where it may grow."""
        if depth >= self.d_max:
            return "d_max"
        if chance < max(self.rho_stop, self.tau):
            return "rho_stop" if self.rho_stop >= self.tau else "tau"
        return "d0" if depth >= used_depth(self.d0) and chance < self.rho_deep else None


@dataclass(frozen=True)
class DynaTree(AdaptiveTree):
    """DynaTree's parameters; the defaults are the paper's. Algorithm 1 obeys the same, breadth first."""

    n_max: int = 256
    """Most drafted nodes of a tree."""
    selection: Selection = "bfs"
    """Which nodes stay when more than `n_max` could: the first in breadth-first order, or the most probable."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.n_max >= 1, f"n_max is {self.n_max}; give 1 or more")
        require(self.selection in ("bfs", "best"), f"selection is {quoted(self.selection)}; give bfs or best")
        _feasible({"n_max": self.n_max})

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """The knobs and how far each can be turned."""
        most = float(max(HIGHEST_NODES, self.n_max))
        return super().ends() | {"n_max": (1.0, most), "selection": (0.0, 1.0)}

    def rule(self) -> TreeRule[float]:
        """How trees grow."""
        return self._rule(self.n_max, best=self.selection == "best")

    def limit(self, depth: int, chance: float) -> Limit:
        """Which of these rules refused children to a leaf of this depth and path probability."""
        return self._limit(depth, chance) or "n_max"


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
        """See `DynaTree.limit`."""
        return self._limit(depth, chance) or "cost"


@dataclass(frozen=True)
class Linear(Turnable):
    """A chain of `k` drafted tokens (speculative decoding as first published)."""

    k: int = 5

    def __post_init__(self) -> None:
        require(self.k >= 1, f"K is {self.k}; give 1 or more")
        _feasible({"K": self.k})

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """The one knob and how far it can be turned."""
        return {"k": (1.0, float(max(HIGHEST_DEPTH, self.k)))}

    def rule(self) -> TreeRule[float]:
        """A chain."""
        return fixed_rule(self.k, 0, 1, self.k)

    def limit(self, depth: int, chance: float) -> Limit:  # noqa: ARG002 - a chain knows one limit
        """See `DynaTree.limit`."""
        return "k"


@dataclass(frozen=True)
class Fixed(Turnable):
    """Every node above `depth` whose path is at least `tau` probable gets `branching` children."""

    depth: int = 5
    branching: int = 2
    tau: float = 0.05
    n_max: int = 256

    def __post_init__(self) -> None:
        require(self.depth >= 1, f"the fixed tree's depth is {self.depth}; give 1 or more")
        require(self.branching >= 1, f"the fixed tree's branching is {self.branching}; give 1 or more")
        require(0 <= self.tau <= 1, f"the fixed tree's tau is {self.tau:g}; give 0 to 1")
        require(self.n_max >= 1, f"n_max is {self.n_max}; give 1 or more")
        _feasible(
            {
                "the fixed tree's depth": self.depth,
                "the fixed tree's branching": self.branching,
                "n_max": self.n_max,
            }
        )

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """The knobs and how far each can be turned."""
        return {
            "fixed_depth": (1.0, float(max(HIGHEST_DEPTH, self.depth))),
            "fixed_branching": (1.0, float(max(HIGHEST_BRANCHING, self.branching))),
            "fixed_tau": (0.0, 1.0),
            "n_max": (1.0, float(max(HIGHEST_NODES, self.n_max))),
        }

    def rule(self) -> TreeRule[float]:
        """How trees grow."""
        return fixed_rule(self.depth, self.tau, self.branching, self.n_max)

    def limit(self, depth: int, chance: float) -> Limit:
        """See `DynaTree.limit`."""
        if depth >= self.depth:
            return "fixed_depth"
        return "fixed_tau" if chance < self.tau else "n_max"


Rules = DynaTree | Auto | Linear | Fixed
"""What decides how a method's trees grow."""


def tree_rule(rules: Rules | None) -> TreeRule[float] | None:
    """How trees of these parameters grow; None for a method that drafts nothing."""
    return rules.rule() if rules else None


RulesName = Literal["dynatree", "auto", "linear", "fixed"]
"""The parameter sets of a run, each a field of `RunConfig`; methods may share one."""
RULES: tuple[RulesName, ...] = get_args(RulesName)

PRESETS: dict[str, DynaTree] = {
    "tuned": DynaTree(d0=2, tau_l=0.05, rho_stop=0.025, rho_deep=0.3, tau=0, history=False, n_max=10, selection="best"),
    "paper": DynaTree(),
}
"""Named values of DynaTree's knobs, those that hold by default first.

`tuned` was chosen on the embedded pair so that D0, tau_h and tau_l each act, at about `paper`'s speed: a low
`rho_stop` leaves it to the knobs where the nodes are, a low `tau_l` pays for that with fewer guesses a node, and a
small `n_max` bounds the cost of a round. History is off: its aim, a depth acceptance of .7, makes trees shallower than
pays.
"""


@dataclass(frozen=True)
class RunConfig:
    """What one run does with one prompt."""

    methods: tuple[str, ...] = ("dynatree", "auto", "ar", "linear", "fixed")
    """Names from `decoder.methods.METHODS`, without repetition. The first is watched until another is chosen."""
    max_new_tokens: int = 256
    seed: int = 0
    chat: bool = False
    """Whether the prompt is one message of a user, wrapped in the tokenizer's chat template."""
    dynatree: DynaTree = PRESETS["tuned"]
    """Algorithm 1's too."""
    auto: Auto = field(default_factory=Auto)
    linear: Linear = field(default_factory=Linear)
    fixed: Fixed = field(default_factory=Fixed)

    def __post_init__(self) -> None:
        require(bool(self.methods), "no method was named; give at least one, for example --methods dynatree,ar")
        repeated = {name for name in self.methods if self.methods.count(name) > 1}
        require(not repeated, f"{', '.join(sorted(repeated))} named twice in methods; name each once")
        require(self.max_new_tokens >= 1, f"max_new_tokens is {self.max_new_tokens}; give 1 or more")

    def rules(self, name: RulesName) -> Rules:
        """One of the parameter sets."""
        found: Rules = getattr(self, name)
        return found

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """Every knob and how far it can be turned; of several parameter sets that have it, in the first."""
        return {name: ends for each in reversed(RULES) for name, ends in self.rules(each).ends().items()}

    def knob(self, name: KnobName) -> float:
        """The value of one knob; of several parameter sets that have it, in the first."""
        return self.rules(self._holders(name)[0]).knob(name)

    def turned(self, name: KnobName, value: float, of: RulesName | None = None) -> "RunConfig":
        """This run with one knob turned within its bounds: of one parameter set, or of all that have it.

        Raises:
            ConfigError: There is no such knob, or `value` is no number.
        """
        found = self
        for each in [of] if of else self._holders(name):
            found = found.with_rules(each, found.rules(each).turned(name, value))
        return found

    def with_rules(self, name: RulesName, rules: Turnable) -> "RunConfig":
        """This run with another parameter set under a name."""
        changed: dict[str, Any] = {name: rules}
        return replace(self, **changed)

    def _holders(self, name: KnobName) -> list[RulesName]:
        """The parameter sets that have a knob."""
        bounds(self, name)
        return [each for each in RULES if self.rules(each).has(name)]

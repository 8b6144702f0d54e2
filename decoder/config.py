"""Parameters of every method, validated when they are made, each with how far it can be turned mid-run; presets.

Knows nothing of models. Names and defaults follow the DynaTree paper (section 3 and appendix A). The paper's ablations
need no switches: adaptive breadth is off when the three branchings are equal, adaptive depth when `rho_stop` and
`rho_deep` are 0, history when `history` is False.
"""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from decoder.errors import quoted, require
from decoder.knobs import HIGHEST_BRANCHING, HIGHEST_DEPTH, HIGHEST_NODES, KNOB_GAP, KnobName, Turnable, bounds

Selection = Literal["bfs", "best"]
AUTO = 0
"""The `n_max` of DynaTree that stands for no number: each round takes as many nodes as pay (`decoder.budget`)."""
MOST = 1 << 12
"""No whole number of the rules is larger: what is kept for a tree, and counted level by level, must stay feasible."""


def _feasible(given: dict[str, int]) -> None:
    for name, value in given.items():
        require(value <= MOST, f"{name} is {value}; give {MOST} or less")


@dataclass(frozen=True)
class DynaTree(Turnable):
    """DynaTree's parameters; the defaults are the paper's."""

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
    n_max: int = 256
    """Most drafted nodes of a tree; AUTO: as many as pay, the most probable ones whatever `selection` says."""
    selection: Selection = "bfs"
    """Which nodes stay when more than `n_max` could: the first in breadth-first order, or the most probable."""
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
        require(self.n_max >= 1 or self.automatic, f"n_max is {self.n_max}; give auto, or 1 or more")
        require(self.selection in ("bfs", "best"), f"selection is {quoted(self.selection)}; give bfs or best")
        require(self.window >= 1, f"window is {self.window}; give 1 or more")
        _feasible({"d_max": self.d_max, "the largest branching": high, "n_max": self.n_max, "window": self.window})

    @property
    def automatic(self) -> bool:
        """Whether each round decides how many nodes pay."""
        return self.n_max == AUTO

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
            "n_max": (float(AUTO), float(max(HIGHEST_NODES, self.n_max))),
        }


@dataclass(frozen=True)
class Printed(DynaTree):
    """DynaTree's parameters as Algorithm 1 obeys them, which has no automatic number of nodes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not self.automatic, "Algorithm 1 has no automatic n_max; give 1 or more")

    @classmethod
    def of(cls, rules: DynaTree) -> Self:
        """What Algorithm 1 makes of DynaTree's rules.

        They are the same, but where `n_max` is automatic: rules that leave the tree to costs are none for a tree that
        knows none. There it has the paper's, with every knob that was set otherwise than in `fast` turned to that, as
        far as its bounds allow.
        """
        if not rules.automatic:
            return cls(**{each.name: getattr(rules, each.name) for each in fields(rules)})
        fast = PRESETS["fast"]
        found = cls(
            window=rules.window, target_acceptance=rules.target_acceptance, eta_d=rules.eta_d, eta_h=rules.eta_h
        )
        set_otherwise = [name for name in rules.ends() if rules.knob(name) != fast.knob(name)]
        # Twice over, since a knob may stand in the way of one that comes before it.
        for name in (*set_otherwise, *set_otherwise):
            found = found.turned(name, rules.knob(name))
        return found

    def turned(self, name: KnobName, value: float) -> Self:
        """See `Turnable.turned`; where DynaTree's `n_max` becomes automatic, this has the paper's."""
        return super().turned(name, DynaTree.n_max if name == "n_max" and value < AUTO + 0.5 else value)

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """The knobs and how far each can be turned."""
        return super().ends() | {"n_max": (1.0, float(max(HIGHEST_NODES, self.n_max)))}


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

    def turned(self, name: KnobName, value: float) -> Self:
        """See `Turnable.turned`; where DynaTree's `n_max` becomes automatic, a fixed tree has its usual one."""
        if name == "n_max" and value < AUTO + 0.5:
            return replace(self, n_max=Fixed.n_max)
        return super().turned(name, value)

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """The knobs and how far each can be turned."""
        return {
            "fixed_depth": (1.0, float(max(HIGHEST_DEPTH, self.depth))),
            "fixed_branching": (1.0, float(max(HIGHEST_BRANCHING, self.branching))),
            "fixed_tau": (0.0, 1.0),
            "n_max": (1.0, float(max(HIGHEST_NODES, self.n_max))),
        }


Rules = DynaTree | Linear | Fixed
"""What decides how a method's trees grow."""

PRESETS: dict[str, DynaTree] = {
    "fast": DynaTree(d0=8, d_max=12, rho_stop=0, tau=0, n_max=AUTO, selection="best"),
    "paper": DynaTree(),
}
"""Named parameter sets of DynaTree, the one that holds by default first.

`fast` leaves the tree to costs and chances; what a knob cuts stays cut.
"""


@dataclass(frozen=True)
class RunConfig:
    """What one run does with one prompt."""

    methods: tuple[str, ...] = ("dynatree", "ar", "linear", "fixed")
    """Names from `decoder.methods.METHODS`, without repetition. The first is the one that is watched."""
    max_new_tokens: int = 256
    seed: int = 0
    chat: bool = False
    """Whether the prompt is one message of a user, wrapped in the tokenizer's chat template."""
    dynatree: DynaTree = PRESETS["fast"]
    linear: Linear = field(default_factory=Linear)
    fixed: Fixed = field(default_factory=Fixed)

    def __post_init__(self) -> None:
        require(bool(self.methods), "no method was named; give at least one, for example --methods dynatree,ar")
        repeated = {name for name in self.methods if self.methods.count(name) > 1}
        require(not repeated, f"{', '.join(sorted(repeated))} named twice in methods; name each once")
        require(self.max_new_tokens >= 1, f"max_new_tokens is {self.max_new_tokens}; give 1 or more")

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """Every knob and how far it can be turned; DynaTree's where the fixed tree has one of that name too."""
        return self.fixed.ends() | self.linear.ends() | self.dynatree.ends()

    def knob(self, name: KnobName) -> float:
        """The value of one knob; DynaTree's where the fixed tree has one of that name too."""
        return next(iter(self._with(name).values())).knob(name)

    def turned(self, name: KnobName, value: float) -> "RunConfig":
        """This run with one knob turned in all rules that have it, in each within its own bounds.

        Raises:
            ConfigError: There is no such knob, or `value` is no number.
        """
        changed: dict[str, Any] = {field: rules.turned(name, value) for field, rules in self._with(name).items()}
        return replace(self, **changed)

    def _with(self, name: KnobName) -> dict[str, Turnable]:
        bounds(self, name)
        every: dict[str, Turnable] = {"dynatree": self.dynatree, "linear": self.linear, "fixed": self.fixed}
        return {field: rules for field, rules in every.items() if rules.has(name)}

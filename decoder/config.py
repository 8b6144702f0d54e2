"""Parameters of every method, validated when they are made; presets; the names a user may turn mid-run.

Knows nothing of models. Names and defaults follow the DynaTree paper (section 3 and appendix A). The paper's ablations
need no switches: adaptive breadth is off when the three branchings are equal, adaptive depth when `rho_stop` and
`rho_deep` are 0, history when `history` is False.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from decoder.errors import ConfigError

Selection = Literal["bfs", "best"]
KnobName = Literal["tau_h", "tau_l", "d0", "history"]


def require(holds: bool, message: str) -> None:  # noqa: FBT001 - a condition reads well as the first argument
    """Raises ConfigError with `message` unless the condition holds."""
    if not holds:
        raise ConfigError(message)


@dataclass(frozen=True)
class DynaTree:
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
    """Pruning threshold of the fixed tree; acts as a lower bound on `rho_stop`."""
    n_max: int = 256
    """Most drafted nodes of a tree."""
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
        require(self.n_max >= 1, f"n_max is {self.n_max}; give 1 or more")
        require(self.selection in ("bfs", "best"), f"selection is {self.selection!r}; give bfs or best")
        require(self.window >= 1, f"window is {self.window}; give 1 or more")

    def turned(self, name: KnobName, value: float) -> "DynaTree":
        """These parameters with one knob at `value`, moved to the nearest value that the bounds allow."""
        match name:
            case "tau_h":
                return replace(self, tau_h=min(1.0, max(self.tau_l + KNOB_GAP, value)))
            case "tau_l":
                return replace(self, tau_l=max(KNOB_GAP, min(self.tau_h - KNOB_GAP, value)))
            case "d0":
                return replace(self, d0=min(float(self.d_max - 1), max(1.0, value)))
            case "history":
                return replace(self, history=bool(value))

    def knob(self, name: KnobName) -> float:
        """The value of one knob; history is 1 or 0."""
        return float(getattr(self, name))


KNOB_GAP = 0.01
"""Least distance of tau_h and tau_l while they are turned, and least tau_l."""


@dataclass(frozen=True)
class Linear:
    """A chain of `k` drafted tokens (speculative decoding as first published)."""

    k: int = 5

    def __post_init__(self) -> None:
        require(self.k >= 1, f"K is {self.k}; give 1 or more")


@dataclass(frozen=True)
class Fixed:
    """Every node above `depth` whose path is at least `tau` probable gets `branching` children."""

    depth: int = 5
    branching: int = 2
    tau: float = 0.05
    n_max: int = 256

    def __post_init__(self) -> None:
        require(self.depth >= 1, f"the fixed tree's depth is {self.depth}; give 1 or more")
        require(self.branching >= 1, f"the fixed tree's branching is {self.branching}; give 1 or more")
        require(0 <= self.tau <= 1, f"tau is {self.tau:g}; give 0 to 1")
        require(self.n_max >= 1, f"n_max is {self.n_max}; give 1 or more")


PRESETS: dict[str, DynaTree] = {"paper": DynaTree()}
"""Named parameter sets of DynaTree."""


@dataclass(frozen=True)
class RunConfig:
    """What one run does with one prompt."""

    methods: tuple[str, ...] = ("dynatree", "ar", "linear", "fixed")
    """Names from `decoder.methods.METHODS`, without repetition. The first is the one that is watched."""
    max_new_tokens: int = 256
    seed: int = 0
    dynatree: DynaTree = field(default_factory=DynaTree)
    linear: Linear = field(default_factory=Linear)
    fixed: Fixed = field(default_factory=Fixed)

    def __post_init__(self) -> None:
        require(bool(self.methods), "no method was named; give at least one, for example --methods dynatree,ar")
        repeated = {name for name in self.methods if self.methods.count(name) > 1}
        require(not repeated, f"{', '.join(sorted(repeated))} named twice in methods; name each once")
        require(self.max_new_tokens >= 1, f"max_new_tokens is {self.max_new_tokens}; give 1 or more")

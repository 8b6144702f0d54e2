"""Growth rule of draft trees, and the step by which history moves it, shared by host, device and replay.

The same code works on plain numbers (the host), numpy arrays (replays of recordings) and tensors inside a CUDA graph.
A chain and a fixed tree are special cases of the rule. Knows no methods and no models. Sources: DynaTree paper,
sections 3.2 (breadth), 3.3 (depth), 3.4 (history).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from decoder.events import Limit
from decoder.knobs import KNOB_GAP, TunableParameters

N = TypeVar("N")
MOST_NODES = 64
"""Most drafted nodes of a tree whose size is decided by costs."""


class Arrays(Protocol):
    """Elementwise operations of an array library: numpy and torch have them, `PLAIN` has them for Python's numbers."""

    def where(self, condition: Any, yes: Any, no: Any, /) -> Any:
        """`yes` where the condition holds, else `no`."""

    def maximum(self, one: Any, other: Any, /) -> Any:
        """The elementwise larger of two."""

    def minimum(self, one: Any, other: Any, /) -> Any:
        """The elementwise smaller of two."""


class _Plain:
    def where(self, condition: Any, yes: Any, no: Any, /) -> Any:
        return yes if condition else no

    def maximum(self, one: Any, other: Any, /) -> Any:
        return max(one, other)

    def minimum(self, one: Any, other: Any, /) -> Any:
        return min(one, other)


PLAIN: Arrays = _Plain()


@dataclass(frozen=True)
class Growth(Generic[N]):
    """Growth rule: the nodes that get children, and their numbers of children.

    A node of depth d and path probability p gets children iff d < deepest, p >= stop, and d < floor(d0 + 0.5) or
    p >= deep.
    """

    deepest: N
    stop: N
    deep: N
    d0: N
    """Base depth, real-valued; history moves it."""
    tau_h: N
    """Confidence from which a node gets `narrow` children; history moves it."""
    tau_l: N
    """Confidence under which a node gets `wide` children."""
    narrow: N
    middle: N
    wide: N


@dataclass(frozen=True)
class History(Generic[N]):
    """Parameters of history: the steps by which past rounds move `d0` and `tau_h`."""

    enabled: N
    """1 where history moves them, 0 where it is off."""
    window: N
    """Number of rounds in the mean depth acceptance."""
    target: N
    """Depth acceptance that history steers towards."""
    eta_d: N
    """Step of `d0` per unit of excess depth acceptance."""
    eta_h: N


@dataclass(frozen=True)
class Budget:
    """Node budget of a tree, the selection of nodes within it, and whether lookups draft too."""

    n_max: int
    """Most drafted nodes of a tree."""
    best: bool = False
    """Whether the most probable nodes stay, and not the first in breadth-first order."""
    by_cost: bool = False
    """Whether costs decide, within this rule, how many nodes a round drafts."""
    lookup: bool = False
    """Whether the text's own past drafts too, where that pays."""


NO_HISTORY = History[float](enabled=0, window=1, target=0, eta_d=0, eta_h=0)


@dataclass(frozen=True)
class TreeRule:
    """Rule of a method's trees: growth, budget and history."""

    growth: Growth[float]
    budget: Budget
    history: History[float] = NO_HISTORY


def fixed_growth(deepest: int, stop: float, width: int) -> Growth[float]:
    """Growth in which nodes above depth `deepest` with path probability >= `stop` get `width` children each."""
    return Growth(
        deepest=deepest, stop=stop, deep=0, d0=deepest, tau_h=1, tau_l=0, narrow=width, middle=width, wide=width
    )


@dataclass(frozen=True)
class Rules(TunableParameters, ABC):
    """Parameters that decide how a method's trees grow."""

    @abstractmethod
    def rule(self) -> TreeRule:
        """Tree rule of these parameters."""

    @abstractmethod
    def limit(self, depth: int, probability: float) -> Limit:
        """The parameter that refused children to a leaf of this depth and path probability."""


def tree_rule(parameters: TunableParameters | None) -> TreeRule | None:
    """Tree rule of these parameters; None for a method that drafts no tree."""
    return parameters.rule() if isinstance(parameters, Rules) else None


def least_probability(growth: Growth[Any], depth: Any, xp: Arrays = PLAIN) -> Any:
    """Least path probability of nodes with children, by depth: greater for deep ones, infinite where none has any."""
    # For integer depths and d0 >= 1, depth + 0.5 <= d0 is the same as depth < floor(d0 + 0.5).
    anywhere = xp.where(depth + 0.5 <= growth.d0, growth.stop, xp.maximum(growth.stop, growth.deep))
    return xp.where(depth < growth.deepest, anywhere, math.inf)


def breadth(growth: Growth[Any], confidence: Any, xp: Arrays = PLAIN) -> Any:
    """Number of children of a node, by the draft's confidence, its largest next-token probability: few where high."""
    unsure = xp.where(confidence < growth.tau_l, growth.wide, growth.middle)
    return xp.where(confidence >= growth.tau_h, growth.narrow, unsure)


def adapted(
    growth: Growth[Any], history: History[Any], mean_depth_acceptance: Any, xp: Arrays = PLAIN
) -> tuple[Any, Any]:
    """History's step: (d0, tau_h) after a round, by the mean depth acceptance of a full window."""
    excess = mean_depth_acceptance - history.target
    d0 = xp.minimum(xp.maximum(growth.d0 + history.eta_d * excess, 1.0), growth.deepest - 1)
    tau_h = xp.minimum(xp.maximum(growth.tau_h - history.eta_h * excess, growth.tau_l + KNOB_GAP), 1.0)
    return d0, tau_h


def used_depth(d0: float) -> int:
    """Base depth in force: d0 rounded to an integer."""
    return math.floor(d0 + 0.5)

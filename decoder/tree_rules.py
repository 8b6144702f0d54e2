"""Growth rule of draft trees and history rule (DynaTree paper, sections 3.2 breadth, 3.3 depth, 3.4 history). The same
code works on Python numbers, on numpy arrays (replays) and on tensors (CUDA graphs). Chains and fixed trees are special
cases.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from decoder.events import Limit
from decoder.knobs import KNOB_GAP, TunableParameters

N = TypeVar("N")
MOST_NODES = 64
"""Largest number of nodes of a tree whose size is chosen by costs (`Budget.by_cost`)."""


class Arrays(Protocol):
    """Elementwise functions on one kind of number, for example numpy for arrays and `PLAIN` for Python numbers."""

    def where(self, condition: Any, yes: Any, no: Any, /) -> Any:
        """Elementwise `yes` where the condition is true, else `no`."""

    def maximum(self, one: Any, other: Any, /) -> Any:
        """Elementwise maximum of two arguments."""

    def minimum(self, one: Any, other: Any, /) -> Any:
        """Elementwise minimum of two arguments."""


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
    """A node of depth d and path probability p gets children iff d < deepest, p >= stop, and (d < floor(d0 + 0.5) or p
    >= deep).
    """

    deepest: N
    stop: N
    deep: N
    d0: N
    """Base depth, a real number; the history rule adjusts it."""
    tau_h: N
    """Least draft confidence with which a node gets `narrow` children; the history rule adjusts it."""
    tau_l: N
    """Draft confidence below which a node gets `wide` children."""
    narrow: N
    middle: N
    wide: N
    sharpness: N
    """Exponent on the draft's probabilities in greedy decoding."""


@dataclass(frozen=True)
class History(Generic[N]):
    """The rule that adjusts `d0` and `tau_h` from the results of past rounds."""

    enabled: N
    """1 if the rule is on, 0 if it is off."""
    window: N
    """Number of latest rounds over which the depth acceptance is averaged."""
    target: N
    """Target of the mean depth acceptance; `d0` and `tau_h` change in proportion to the mean minus the target."""
    eta_d: N
    eta_h: N


@dataclass(frozen=True)
class Budget:
    """Node budget, the choice of nodes within it, and whether suffix lookup drafts too."""

    n_max: int
    least: float = 0.0
    """Least path probability of a drafted node."""
    best: bool = False
    """Whether a tree keeps its `n_max` most probable nodes; otherwise the first `n_max` in breadth-first order."""
    beam: int = 0
    """With `best`: largest number of nodes of a level that get children, the most probable first; 0 means `n_max`."""
    by_cost: bool = False
    """Whether expected costs decide, within the rule's limits, how many nodes a round drafts."""
    lookup: bool = False
    """Whether suffix lookup also drafts, in rounds in which its expected gain outweighs its time."""

    @property
    def growing(self) -> int:
        """Largest number of nodes of a level that get children."""
        return min(self.n_max, self.beam) if self.beam else self.n_max


NO_HISTORY = History[float](enabled=0, window=1, target=0, eta_d=0, eta_h=0)


@dataclass(frozen=True)
class TreeRule:
    growth: Growth[float]
    budget: Budget
    history: History[float] = NO_HISTORY


def fixed_growth(deepest: int, stop: float, width: int) -> Growth[float]:
    """`width` children for each node of depth < `deepest` and path probability >= `stop`."""
    return Growth(
        deepest=deepest,
        stop=stop,
        deep=0,
        d0=deepest,
        tau_h=1,
        tau_l=0,
        narrow=width,
        middle=width,
        wide=width,
        sharpness=1,
    )


@dataclass(frozen=True)
class Rules(TunableParameters, ABC):
    @abstractmethod
    def rule(self) -> TreeRule: ...

    @abstractmethod
    def limit(self, depth: int, probability: float) -> Limit:
        """Name of the parameter that prevents children of a leaf with this depth and path probability."""


def tree_rule(parameters: TunableParameters | None) -> TreeRule | None:
    """Tree rule of a method's parameters; None for a method that drafts no tree."""
    return parameters.rule() if isinstance(parameters, Rules) else None


def least_probability(growth: Growth[Any], depth: Any, xp: Arrays = PLAIN) -> Any:
    """Least path probability at which nodes of a depth get children; infinite from depth `deepest` on."""
    # The threshold is `stop` if depth < floor(d0 + 0.5). For integer depths and d0 >= 1, this means depth + 0.5 <= d0.
    anywhere = xp.where(depth + 0.5 <= growth.d0, growth.stop, xp.maximum(growth.stop, growth.deep))
    return xp.where(depth >= growth.deepest, math.inf, anywhere)


def breadth(growth: Growth[Any], confidence: Any, xp: Arrays = PLAIN) -> Any:
    """Number of a node's children, given the draft's largest next-token probability after the node."""
    unsure = xp.where(confidence < growth.tau_l, growth.wide, growth.middle)
    return xp.where(confidence >= growth.tau_h, growth.narrow, unsure)


def adapted(
    growth: Growth[Any], history: History[Any], mean_depth_acceptance: Any, xp: Arrays = PLAIN
) -> tuple[Any, Any]:
    """(d0, tau_h) after one step of the history rule, given the mean depth acceptance over a full window of rounds."""
    excess = mean_depth_acceptance - history.target
    d0 = xp.minimum(xp.maximum(growth.d0 + history.eta_d * excess, 1.0), growth.deepest - 1)
    tau_h = xp.minimum(xp.maximum(growth.tau_h - history.eta_h * excess, growth.tau_l + KNOB_GAP), 1.0)
    return d0, tau_h


def used_depth(d0: float) -> int:
    return math.floor(d0 + 0.5)

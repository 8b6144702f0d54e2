"""Parameters of adaptive trees and their knobs, named as in the DynaTree paper (section 3 and appendix A). The paper's
ablations need no switches. Adaptive breadth is off if the three branchings are equal, adaptive depth if `rho_stop` and
`rho_deep` are 0, the history rule if `history` is False.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from decoder.errors import require
from decoder.events import Limit
from decoder.knobs import HIGHEST_BRANCHING, HIGHEST_DEPTH, KNOB_DIGITS, KNOB_GAP, KnobInfo, require_feasible
from decoder.tree_rules import Budget, Growth, History, Rules, TreeRule, used_depth

SHARPEST = 4.0
"""Largest `sharpness`; with it, the most probable token has nearly all probability."""


@dataclass(frozen=True)
class AdaptiveTree(Rules):
    """The number of a node's children depends on the draft's confidence, and the depth on path probabilities."""

    d0: float = 5.0
    """Base depth (rounded): from this depth on, only nodes with path probability `rho_deep` or more get children."""
    d_max: int = 8
    branching: tuple[int, int, int] = (1, 2, 3)
    """Number of children of a node after which the draft is confident, in between, or unsure."""
    tau_h: float = 0.9
    """The draft is confident if its largest next-token probability is at least `tau_h`, which the history rule adapts.
    """
    tau_l: float = 0.4
    """The draft is unsure if its largest next-token probability is below `tau_l`."""
    rho_stop: float = 0.1
    """Least path probability at which a node gets children."""
    rho_deep: float = 0.5
    """Least path probability at which a node at the base depth or deeper gets children."""
    tau: float = 0.05
    """Lower bound on `rho_stop`; in the paper also the threshold of the fixed tree."""
    sharpness: float = 1.0
    """Exponent on the draft's probabilities in greedy decoding, so that they estimate the probability that the target
    chooses a token; 1 is the paper's rule. Sampling uses `decoder.sampling.noise.sharpness` instead.
    """
    history: bool = True
    """Whether the history rule adapts `d0` and `tau_h` after each round."""
    window: int = 10
    """Number of rounds over which the history rule averages the depth acceptance."""
    target_acceptance: float = 0.7
    """Depth acceptance that the history rule aims at."""
    eta_d: float = 1.0
    """Increase of `d0` per unit of depth acceptance above the target."""
    eta_h: float = 0.1
    """Decrease of `tau_h` per unit of depth acceptance above the target."""

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        KnobInfo("tau_h", "τh", "from this confidence on: fewest children", "probability",
                 lambda own: (min(own.tau_h, round(own.tau_l + KNOB_GAP, KNOB_DIGITS)), 1.0), 0.05, 0.2, keys="[]",
                 brief="sure from",
                 key_help="turn τh down or up: the least confidence at which a node gets the fewest children"),
        KnobInfo("tau_l", "τl", "below this confidence: most children", "probability",
                 lambda own: (min(own.tau_l, KNOB_GAP), max(own.tau_l, round(own.tau_h - KNOB_GAP, KNOB_DIGITS))),
                 0.05, 0.2, keys="{}", brief="unsure below",
                 key_help="turn τl down or up: the confidence below which a node gets the most children"),
        KnobInfo("d0", "D0", "base depth: likely paths reach it", "real", lambda own: (1.0, own.d_max - 1.0), coarse=2,
                 keys="-=", brief="base depth", key_help="turn D0 down or up: the base depth that likely paths reach"),
        KnobInfo("history", "history", "past rounds change D0 and τh", "switch", lambda _: (0.0, 1.0), coarse=1,
                 values={"off": False, "on": True}),
        KnobInfo("d_max", "D_max", "no path is deeper", "whole",
                 lambda own: (max(2.0, math.ceil(own.d0) + 1.0), float(max(HIGHEST_DEPTH, own.d_max)))),
        KnobInfo("b_min", "B_min", "guesses where the draft is sure", "whole",
                 lambda own: (1.0, float(own.branching[1])), coarse=2, turns="branching", part=0),
        KnobInfo("b_mid", "B_mid", "guesses where the draft is in between", "whole",
                 lambda own: (float(own.branching[0]), float(own.branching[2])), coarse=2, turns="branching", part=1),
        KnobInfo("b_max", "B_max", "guesses where the draft is unsure", "whole",
                 lambda own: (float(own.branching[1]), float(max(HIGHEST_BRANCHING, own.branching[2]))), coarse=2,
                 turns="branching", part=2),
        KnobInfo("rho_stop", "rho_stop", "less probable paths end", "probability",
                 lambda own: (0.0, own.rho_deep), 0.01, 0.05),
        KnobInfo("rho_deep", "rho_deep", "at D0 or deeper, less probable paths end", "probability",
                 lambda own: (own.rho_stop, 1.0), 0.05, 0.2),
        KnobInfo("sharpness", "sharpness", "greedy: exponent on draft probabilities", "real",
                 lambda own: (min(own.sharpness, 0.5), max(own.sharpness, SHARPEST)), 0.25, 1),
        KnobInfo("tau", "τ", "lower bound on rho_stop", "probability",
                 lambda _: (0.0, 1.0), 0.01, 0.05),
    )  # fmt: skip

    def __post_init__(self) -> None:
        low, mid, high = self.branching
        require(self.d_max >= 2, f"d_max is {self.d_max}; give 2 or more", "d_max")
        bounds = f"give 1 to {self.d_max - 1} (D_max - 1)"
        require(1 <= self.d0 <= self.d_max - 1, f"D0 is {self.d0:g}; {bounds}", "d0", "d_max")
        require(
            0 < self.tau_l < self.tau_h <= 1,
            f"tau_l is {self.tau_l:g} and tau_h is {self.tau_h:g}; give 0 < tau_l < tau_h <= 1",
            "tau_l",
            "tau_h",
        )
        require(
            0 <= self.rho_stop <= self.rho_deep <= 1,
            f"rho_stop is {self.rho_stop:g} and rho_deep {self.rho_deep:g}; give 0 <= rho_stop <= rho_deep <= 1",
            "rho_stop",
            "rho_deep",
        )
        require(
            1 <= low <= mid <= high,
            f"branching is {low},{mid},{high}; give three ascending numbers, each 1 or more",
            "branching",
        )
        require(0 <= self.tau <= 1, f"tau is {self.tau:g}; give 0 to 1", "tau")
        require(
            0 < self.sharpness <= SHARPEST,
            f"sharpness is {self.sharpness:g}; give more than 0, at most {SHARPEST:g}",
            "sharpness",
        )
        require(self.window >= 1, f"window is {self.window}; give 1 or more", "window")
        require_feasible({"d_max": self.d_max, "window": self.window})
        require_feasible({"the largest branching": high}, "branching")

    def moved(self, d0: float, tau_h: float) -> Self:
        """A copy with new values from the history rule, which are within their bounds. Made in every round, so without
        `dataclasses.replace`, which checks all parameters and would take ten times as long.
        """
        copy = object.__new__(type(self))
        vars(copy).update(vars(self), d0=d0, tau_h=tau_h)
        return copy

    def _rule(self, budget: Budget) -> TreeRule:
        narrow, middle, wide = self.branching
        growth = Growth[float](
            deepest=self.d_max,
            stop=max(self.rho_stop, self.tau),
            deep=self.rho_deep,
            d0=self.d0,
            tau_h=self.tau_h,
            tau_l=self.tau_l,
            narrow=narrow,
            middle=middle,
            wide=wide,
            sharpness=self.sharpness,
        )
        history = History[float](self.history, self.window, self.target_acceptance, self.eta_d, self.eta_h)
        return TreeRule(growth, budget, history)

    def _limit(self, depth: int, probability: float) -> Limit | None:
        """The parameter that prevents children of a node of this depth and path probability; None if there is none."""
        if depth >= self.d_max:
            return "d_max"
        if probability < max(self.rho_stop, self.tau):
            return "rho_stop" if self.rho_stop >= self.tau else "tau"
        return "d0" if depth >= used_depth(self.d0) and probability < self.rho_deep else None

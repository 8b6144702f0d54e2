"""The method burst of a test: drafts one level of the most probable next tokens. It is written as any method is."""

from dataclasses import dataclass
from typing import ClassVar

from decoder.errors import require
from decoder.events import Limit
from decoder.knobs import HIGHEST_BRANCHING, KnobInfo
from decoder.methods.method import Method, Option
from decoder.tree_rules import Budget, Rules, TreeRule, fixed_growth


@dataclass(frozen=True)
class Burst(Rules):
    width: int = 3
    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        KnobInfo("burst_width", "W", "guesses at once", "whole", lambda _: (1.0, float(HIGHEST_BRANCHING)),
                 turns="width", keys="[]", brief="guesses"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        require(1 <= self.width <= HIGHEST_BRANCHING, f"burst's width is {self.width}; give 1 to {HIGHEST_BRANCHING}")

    def rule(self) -> TreeRule:
        return TreeRule(fixed_growth(1, 0, self.width), Budget(self.width))

    def limit(self, depth: int, chance: float) -> Limit:  # noqa: ARG002 - the only limit
        return "burst_width"


OPTIONS = (Option("burst_width", int, "W", "Guesses of burst at once.", ("width",)),)
METHOD = Method("burst", "the most probable next tokens at once", Burst(), options=OPTIONS)

"""Rounds of `auto` that follow an earlier decision: limits on path probabilities replace the prices of the decision.
Deciding and learning take a notable part of a small model's round, so while lookups pause, only one round in a few
makes a decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from decoder.tree_rules import TreeRule

MOST_FOLLOWING = 48
"""Largest number of rounds that follow one decision."""
FURTHER = 0.8
"""Factor on the price of a level, since a level makes further levels possible."""
TIMED = 8
"""Largest number of following rounds, the latest, whose times the next decision uses."""


@dataclass(frozen=True)
class PathLimits:
    """Least path probabilities for growing and for keeping a node."""

    grown: float
    """Least path probability of a node that gets children."""
    kept: float
    """Least path probability of a node that is verified."""
    rows: int = 1
    """Number of rows up to which each further row costs at most as much as a node of probability `kept` gains."""


def path_limits(usual: tuple[float, float], level_price: float, verify_prices: Sequence[float]) -> PathLimits:
    """Limits above which a node is worth its price. Prices in tokens: `level_price` of a draft pass, `verify_prices` of
    verifications of 1, 2, ... rows. `usual`: mean acceptance probabilities of first and second guesses.
    """
    first, second = usual
    row_price = (verify_prices[-1] - verify_prices[0]) / (len(verify_prices) - 1)
    further = [after - before for before, after in pairwise(verify_prices)]
    one, two = (level_price + row_price) / first, (level_price + 2 * row_price) / (first + second)
    return PathLimits(
        grown=min(1.0, FURTHER * one, FURTHER * two),
        kept=min(1.0, row_price),
        rows=1 + sum(1 for _ in takewhile(lambda price: price <= row_price, further)),
    )


@dataclass(slots=True)
class FollowedRound:
    calls: Sequence[int]
    """Number of rows of each draft pass; empty if the context was full."""
    rows: int
    tokens: int = 0
    times_s: tuple[float, float, float] | None = None
    """Seconds of drafting, verification and whole round; None until known, or if a busy machine slowed the round."""


class FollowingRounds:
    def __init__(self) -> None:
        self.current: FollowedRound | None = None
        """The current round; None if it does not follow an earlier decision."""
        self._left = 0
        self._credit, self._round_tokens = 0.0, 1.0
        self.limits = PathLimits(0, 0)
        self._rule: tuple[TreeRule, TreeRule] | None = None
        self._past: list[FollowedRound] = []

    def begin(self, limits: PathLimits, credit: float, round_tokens: float) -> None:
        """`credit`: tokens that the following rounds may lose; `round_tokens`: tokens of plain decoding in the time of
        one such round.
        """
        self.limits, self._left, self._rule = limits, MOST_FOLLOWING, None
        self._credit, self._round_tokens = credit, round_tokens

    def next_rule(self, rule: TreeRule) -> TreeRule | None:
        """Begins the next round and returns its rule; None if the round needs a decision."""
        self.current = None
        if self._left <= 0 or self._credit < self._round_tokens - 1:
            return None
        self._left -= 1
        if self._rule is None or self._rule[0] is not rule:
            self._rule = rule, within(rule, self.limits)
        return self._rule[1]

    def add(self, calls: Sequence[int], rows: int) -> None:
        self.current = FollowedRound(calls, rows)
        self._past.append(self.current)

    def learn(self, tokens: int) -> bool:
        """Records the number of tokens of the current round; returns whether the round follows an earlier decision."""
        if self.current is None:
            return False
        self.current.tokens = tokens
        self._credit += tokens - self._round_tokens
        return True

    def take(self) -> Sequence[FollowedRound]:
        """Returns the rounds that have followed decisions since the last call."""
        past, self._past = self._past, []
        return past


def within(rule: TreeRule, limits: PathLimits) -> TreeRule:
    growth, budget = rule.growth, rule.budget
    stop, deep = max(growth.stop, limits.grown), max(growth.deep, limits.grown)
    return replace(
        rule,
        growth=replace(growth, stop=stop, deep=deep),
        budget=replace(budget, best=False, least=max(budget.least, limits.kept)),
    )

"""Rounds that follow a decision of `auto`: their trees grow within limits on path probabilities that stand for the
decision's prices.

A decision by expected tokens and costs, and what is learnt from its round, take a notable part of a small model's
round. While lookups pause, therefore, only one round in a few is decided. This module knows neither texts nor trees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from decoder.tree_rules import TreeRule

MOST_FOLLOWING = 48
"""Largest number of rounds that follow a decision."""
FURTHER = 0.8
"""Factor on the price of a level, since a level makes further levels possible."""
TIMED = 8
"""Number of these rounds, the latest ones, whose times the next decision learns."""


@dataclass(frozen=True)
class PathLimits:
    """Least probabilities that the target accepts a node and its ancestors."""

    grown: float
    """Of a node that gets children."""
    kept: float
    """Of a node that is verified."""
    rows: int = 1
    """Number of rows of a verification up to which no row costs more than a node of probability `kept` is worth."""


def path_limits(usual: tuple[float, float], level_price: float, verify_prices: Sequence[float]) -> PathLimits:
    """The limits at which a node is worth its price.

    Args:
        usual: Mean acceptance probabilities of a node's first and second guess.
        level_price: Price of a draft pass, in tokens.
        verify_prices: Prices of verifications of 1, 2, ... rows, in tokens.
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
    """A round that followed a decision, from which nothing was learnt yet."""

    calls: Sequence[int]
    """Number of rows of each draft pass; empty if the context had no room for a draft."""
    rows: int
    """Number of verified rows."""
    tokens: int = 0
    """Number of committed tokens."""
    times_s: tuple[float, float, float] | None = None
    """Seconds of drafting, of verification and of the whole round; None while unknown, or if the round was
    disturbed.
    """


class FollowingRounds:
    """The rounds of one text that follow its latest decision."""

    def __init__(self) -> None:
        self.current: FollowedRound | None = None
        """The current round; None if it does not follow a decision."""
        self._left = 0
        self._credit, self._round_tokens = 0.0, 1.0
        self.limits = PathLimits(0, 0)
        """Limits of the latest decision."""
        self._rule: tuple[TreeRule, TreeRule] | None = None
        """A growth rule, and the same rule within the limits."""
        self._past: list[FollowedRound] = []

    def begin(self, limits: PathLimits, credit: float, round_tokens: float) -> None:
        """Lets at most `MOST_FOLLOWING` rounds follow a decision with these limits.

        Args:
            limits: The limits.
            credit: Number of tokens that these rounds may lose.
            round_tokens: Number of tokens that plain decoding commits in the time of one of these rounds.
        """
        self.limits, self._left, self._rule = limits, MOST_FOLLOWING, None
        self._credit, self._round_tokens = credit, round_tokens

    def next_rule(self, rule: TreeRule) -> TreeRule | None:
        """Begins the next round; returns `rule` within the limits, or None if the round needs a decision."""
        self.current = None
        if self._left <= 0 or self._credit < self._round_tokens - 1:
            return None
        self._left -= 1
        if self._rule is None or self._rule[0] is not rule:
            self._rule = rule, within(rule, self.limits)
        return self._rule[1]

    def add(self, calls: Sequence[int], rows: int) -> None:
        """Adds the current round, which has drafted its tree; see `FollowedRound`."""
        self.current = FollowedRound(calls, rows)
        self._past.append(self.current)

    def learn(self, tokens: int) -> bool:
        """Records the committed tokens of the current round; returns whether it follows a decision."""
        if self.current is None:
            return False
        self.current.tokens = tokens
        self._credit += tokens - self._round_tokens
        return True

    def take(self) -> Sequence[FollowedRound]:
        """The rounds that followed decisions so far, which are then forgotten."""
        past, self._past = self._past, []
        return past


def within(rule: TreeRule, limits: PathLimits) -> TreeRule:
    """A growth rule within the limits."""
    growth, budget = rule.growth, rule.budget
    stop, deep = max(growth.stop, limits.grown), max(growth.deep, limits.grown)
    return replace(
        rule,
        growth=replace(growth, stop=stop, deep=deep),
        budget=replace(budget, best=False, least=max(budget.least, limits.kept)),
    )

"""How much a round drafts, so that most tokens a second are committed: what `n_max` is when it is automatic.

Time has a price: the tokens that the run commits a second. A level is drafted and a node kept only where it is expected
to bring more than its time is worth, so each round adds what raises the rate of all rounds (not only its own). Where
drafting has not paid of late, rounds go without a draft and one in many tries again. DynaTree's rules have cut the tree
before it gets here. Knows chances and costs, and neither models nor clocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.calibration import Calibration
from decoder.costs import HIGHEST_ROWS, Costs

MOST_NODES = HIGHEST_ROWS - 1
"""No round keeps more nodes."""
MEMORY = 0.98
"""Share of the running sums that a round leaves."""
FORESIGHT = 0.75
"""A level costs as if time were cheaper by this: it opens the way to further levels."""
KINSHIP = 0.8
"""Exponent to begin with, see `NodeBudget`."""
LEAST_KINSHIP = 0.3
KINSHIP_STEP = 0.05
GAIN = 0.3
"""Tokens that a drafting round is thought to bring beyond its time, to begin with."""
GAIN_STEP = 0.1
LEAST_GAIN = -0.05
"""So that one good try is enough to draft again."""
FIRST_PAUSE = 16
"""Rounds without a draft before the next try."""
LONGEST_PAUSE = 128
"""A pause doubles each time that a try fails, up to this."""
_SLOPE_ROWS = 8


@dataclass(frozen=True)
class _Grown:
    """The best next tokens after a node, and where its children are."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    first: int
    """Node of the most probable child."""
    count: int
    """Children in the tree."""


class NodeBudget:
    """Decides for one text, round by round; learns from each round.

    A path's chance is the product of its nodes' chances. Along the chain of the most probable tokens that is too
    little: where one guess is right the next is likelier to be right. So the chain's product, beyond its first node, is
    raised to an exponent that is learnt, its kinship.
    """

    def __init__(self, costs: Costs) -> None:
        self.calibration = Calibration()
        self.kinship = KINSHIP
        self.gain = GAIN
        self._costs = costs
        self._pause = FIRST_PAUSE
        self._left = 0
        """Rounds without a draft that are still to come."""
        start = 4.0
        self._tokens, self._time_s = start, start * costs.plain.seconds(1)
        self._first, self._second, self._seen = 0.6 * start, 0.15 * start, start
        """Running sums of the chances of first and second children, and how many."""
        self._begin()

    def drafts(self) -> bool:
        """Whether the next round drafts at all; called once a round."""
        self._begin()
        if self._left:
            self._left -= 1
            return False
        return True

    def _begin(self) -> None:
        self._products, self._chances = [1.0], [1.0]
        self._chain = [0]
        self._grown: dict[int, _Grown] = {}
        self._calls: list[int] = []
        self._kept: list[int] = [0]

    @property
    def price(self) -> float:
        """Tokens that a second is worth."""
        return max(1 / self._costs.plain.seconds(1), self._tokens / self._time_s)

    def called(self, rows: int) -> None:
        """The draft has forwarded so many rows."""
        self._calls.append(rows)

    def worth_growing(self, parents: Sequence[int]) -> list[int]:
        """Those of a level's nodes that are to be forwarded and get children; none where that does not pay."""
        price = self.price * FORESIGHT
        verify = self._costs.verify
        node_price = price * (verify.seconds(1 + _SLOPE_ROWS) - verify.seconds(1)) / _SLOPE_ROWS
        first, second = self._first / self._seen, self._second / self._seen
        ranked = sorted(parents, key=lambda node: -self._chances[node])
        best, count, value = 0.0, 0, 0.0
        for rows, node in enumerate(ranked, 1):
            chance = self._chances[node]
            value += max(0.0, chance * first - node_price) + max(0.0, chance * second - node_price)
            if (net := value - price * self._costs.draft.seconds(rows)) > best:
                best, count = net, rows
        if count:
            self.called(count)
        return sorted(ranked[:count])

    def grown(self, parent: int, tokens: Sequence[int], logprobs: Sequence[float], count: int) -> None:
        """A node gets its `count` most probable children, of these best next tokens; they are the newest nodes."""
        first = len(self._chances)
        self._grown[parent] = _Grown(tokens, logprobs, first, count)
        chances = self.calibration.chances(logprobs)
        products = [self._products[parent] * chance for chance in chances[:count]]
        self._products += products
        self._chances += products
        if parent == self._chain[-1]:
            self._chain.append(first)
            begun = self._products[self._chain[1]]
            self._chances[first] = begun * (products[0] / begun) ** self.kinship
        self._first = MEMORY * self._first + chances[0]
        self._second = MEMORY * self._second + (chances[1] if count > 1 else 0.0)
        self._seen = MEMORY * self._seen + 1

    def keep(self) -> list[int]:
        """The root and the nodes that are worth verifying, in their order; parents are among them."""
        ranked = sorted(range(1, len(self._chances)), key=lambda node: -self._chances[node])[:MOST_NODES]
        price, seconds = self.price, self._costs.verify.by_rows()
        best, count, tokens = -price * seconds[1], 0, 0.0
        for nodes, node in enumerate(ranked, 1):
            tokens += self._chances[node]
            if (net := tokens - price * seconds[nodes + 1]) > best:
                best, count = net, nodes
        self._kept = sorted([0, *ranked[:count]])
        return self._kept

    def learn(self, burst: Sequence[int]) -> None:
        """Takes note of what the target chose from the root on: the accepted tokens and one more."""
        accepted, node = set[int](), 0
        for token in burst:
            grown = self._grown.get(node)
            if grown is None:
                break
            chosen = grown.tokens.index(token) if token in grown.tokens else None
            self.calibration.learn(grown.logprobs, chosen)
            if chosen is None or chosen >= grown.count:
                break
            node = grown.first + chosen
            accepted.add(node)
        self._compare(accepted)
        self._judge(len(burst))

    def _compare(self, accepted: set[int]) -> None:
        """Moves the kinship to where the chain's chances and its hits agree."""
        kept = set(self._kept)
        chain = [node for node in self._chain[2:] if node in kept]
        surplus = sum(node in accepted for node in chain) - sum(self._chances[node] for node in chain)
        self.kinship = min(1.0, max(LEAST_KINSHIP, self.kinship - KINSHIP_STEP * surplus))

    def _judge(self, tokens: int) -> None:
        """Whether drafting pays: by expected times, which no single slow call upsets."""
        costs, plain_s = self._costs, self._costs.plain.seconds(1)
        round_s = plain_s
        if self._calls:
            round_s = sum(map(costs.draft.seconds, self._calls))
            round_s += costs.verify.seconds(len(self._kept)) + costs.host.seconds(1)
        self._tokens = MEMORY * self._tokens + tokens
        self._time_s = MEMORY * self._time_s + round_s
        if not self._calls:
            return
        self.gain = max(LEAST_GAIN, self.gain + GAIN_STEP * (tokens - round_s / plain_s - self.gain))
        if self.gain > 0:
            self._pause = FIRST_PAUSE
        else:
            self._left, self._pause = self._pause, min(LONGEST_PAUSE, 2 * self._pause)

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """Takes note of what the round took."""
        costs = self._costs
        if not self._calls:
            costs.plain.learn([1], round_s)
        elif max(self._calls) <= HIGHEST_ROWS:
            costs.draft.learn(self._calls, draft_s)
            costs.verify.learn([len(self._kept)], verify_s)
            costs.host.learn([1], round_s - draft_s - verify_s)

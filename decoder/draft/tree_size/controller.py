"""How much a round drafts, so that most tokens a second are committed: the method `auto`.

Time has a price: the tokens that the run commits a second. A level is drafted and a node kept only where it is expected
to bring more than its time is worth, and no round may lose more than the text has credit for (`loss_limit`). DynaTree's
rules have cut the tree before. Knows chances and costs, and neither models nor clocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from decoder.draft.suffix_automaton import Place, SuffixAutomaton
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import HIGHEST_ROWS, Costs
from decoder.draft.tree_size.loss_limit import LossLimit

MOST_NODES = HIGHEST_ROWS - 1
"""No round keeps more nodes."""
FORESIGHT = 0.9
"""A level costs as if time were cheaper by this: it opens the way to further levels."""
REMEMBERED = 4096
"""Tokens of a prompt, the newest, in which repetitions are looked for."""
_SLOPE_ROWS = 8


@dataclass(slots=True)
class _Grown:
    """The best next tokens after a node, and where its children are."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    familiar: Sequence[int]
    """How familiar each of them is, and then the likeliest of all others."""
    shares: Sequence[float]
    """Their chances, and then that of all others."""
    first: int
    """Node of the most probable child."""
    count: int
    """Children in the tree."""


@dataclass
class _Round:
    """What one round has drafted so far; lists by node."""

    places: list[Place]
    """Where in the text each path has been before."""
    chances: list[float] = field(default_factory=lambda: [1.0])
    """Of the path to be right."""
    grown: dict[int, _Grown] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    """Rows of the draft's forward passes; of text in the first."""
    draft_s: float = 0.0
    """Expected time of these passes."""
    kept: list[int] = field(default_factory=lambda: [0])
    limit_s: float = 0.0
    """How long its models may take if all guesses may fail."""
    price: float = 0.0
    """Tokens that a second is worth in this round."""
    row_price: float = 0.0
    """Tokens that the verification of one more node is worth, on average."""


def most_worth(gains: Sequence[float], price: float, seconds: Sequence[float]) -> list[int]:
    """The things to take so that their gains exceed the price of their time by most, rising; ties by their order.

    Args:
        gains: What each is expected to bring, in tokens.
        price: Tokens that a second is worth.
        seconds: How long it takes with none, one, two, ... of them; as many may be taken as have a time.
    """
    ranked = sorted(range(len(gains)), key=lambda index: -gains[index])
    best, count, tokens = -price * seconds[0], 0, 0.0
    for taken, index in enumerate(ranked[: len(seconds) - 1], 1):
        tokens += gains[index]
        if (net := tokens - price * seconds[taken]) > best:
            best, count = net, taken
    return sorted(ranked[:count])


class TreeSizeController:
    """Decides for one text, round by round; learns from each round. A path's chance is that of all its nodes."""

    def __init__(self, costs: Costs, acceptance: AcceptanceModel, text: Sequence[int] = ()) -> None:
        """Begins a text, which adds to the costs and to what is known of the draft's guesses.

        Of the text that is there already the latest `REMEMBERED` tokens count.
        """
        self.acceptance = acceptance
        self.credit = LossLimit(costs, acceptance)
        self.costs = costs
        self._repeats = SuffixAutomaton(text[-REMEMBERED:])
        self._unread: list[int] = []
        """Committed tokens that repeats do not hold yet."""
        self._round = _Round([self._repeats.here])

    def drafts(self, behind: int) -> bool:
        """Whether the next round drafts at all; called once a round, with the rows that the draft has to catch up."""
        probes = self.credit.probe_due(behind)
        if probes or self.credit.may_draft:
            self._begin(behind)
            if probes or self._affordable(2):
                return True
        self._round.calls.clear()
        return False

    def _begin(self, behind: int) -> None:
        costs, price = self.costs, self.credit.price
        # Not round by round: without a draft, a round must cost no more than one of `ar`.
        self._repeats.extend(self._unread)
        self._unread.clear()
        slope_s = costs.verify.seconds(1 + _SLOPE_ROWS) - costs.verify.seconds(1)
        self._round = _Round(
            [self._repeats.here],
            calls=[behind],
            draft_s=costs.catch_up.seconds(behind),
            limit_s=(1 + self.credit.stake) * costs.plain_s() - costs.host.seconds(1),
            price=price,
            row_price=price * slope_s / _SLOPE_ROWS,
        )

    @property
    def chances(self) -> Sequence[float]:
        """The chance of each of the round's nodes to be right."""
        return self._round.chances

    def _affordable(self, rows: int, level_s: float = 0.0) -> bool:
        """Whether a verification of so many rows is, after the draft's calls so far and one that takes `level_s`."""
        return self.costs.verify.seconds(rows) + level_s + self._round.draft_s <= self._round.limit_s

    def probe_draft(self, guesses: Sequence[tuple[Sequence[int], Sequence[float]]], text: Sequence[int]) -> None:
        """Takes note of what the draft would have guessed for the latest tokens of a text that went without it.

        What was easy or hard long ago says little of what comes. A guess: best tokens, log-probabilities.
        """
        hits = 0
        for (tokens, logprobs), token in zip(guesses, text, strict=True):
            shares = self.acceptance.shares(logprobs)
            self.acceptance.learn(logprobs, shares, tokens.index(token) if token in tokens else None)
            self.acceptance.see(shares, len(tokens))
            hits += token == tokens[0]
        paid = self.costs.catch_up.seconds(self._round.calls[0]) / self.costs.plain_s()
        self.credit.probed(hits / len(text), paid)

    def worth_growing(self, parents: Sequence[int]) -> list[int]:
        """Those of a level's nodes that are to be forwarded and get children; none where that does not pay."""
        drafted, draft = self._round, self.costs.draft
        price, row_price = drafted.price * FORESIGHT, drafted.row_price * FORESIGHT
        first, second = self.acceptance.usual
        gains = [
            max(0.0, drafted.chances[node] * first - row_price) + max(0.0, drafted.chances[node] * second - row_price)
            for node in parents
        ]
        forwarded = [parents[index] for index in most_worth(gains, price, draft.by_rows(len(gains)))]
        level_s = draft.seconds(len(forwarded))
        if not forwarded or not self._affordable(len(drafted.calls) + 2, level_s):
            return []
        drafted.calls.append(len(forwarded))
        drafted.draft_s += level_s
        return forwarded

    def grown(self, parent: int, tokens: Sequence[int], logprobs: Sequence[float], count: int) -> None:
        """A node gets its `count` most probable children, of these best next tokens; they are the newest nodes."""
        drafted, count = self._round, min(count, len(tokens))
        places, familiar = self._repeats.ahead(drafted.places[parent], tokens)
        shares = self.acceptance.shares(logprobs, familiar)
        drafted.grown[parent] = _Grown(tokens, logprobs, familiar, shares, len(drafted.chances), count)
        chance = drafted.chances[parent]
        drafted.places += places[:count]
        drafted.chances += [chance * share for share in shares[:count]]
        self.acceptance.see(shares, count)

    def keep(self) -> list[int]:
        """The root and the nodes that are worth verifying, in their order; parents are among them."""
        drafted, left_s = self._round, self._round.limit_s - self._round.draft_s
        _, *verify_s = self.costs.verify.by_rows(len(drafted.chances))
        while len(verify_s) > 1 and verify_s[-1] > left_s:
            verify_s.pop()
        drafted.kept = [0, *(node + 1 for node in most_worth(drafted.chances[1:], drafted.price, verify_s))]
        return drafted.kept

    def learn(self, burst: Sequence[int]) -> None:
        """Takes note of what the target chose from the root on: the accepted tokens and one more."""
        self._unread += burst
        if not self._round.calls:
            self.credit.wait(len(burst))
            return
        node = 0
        for token in burst:
            grown = self._round.grown.get(node)
            if grown is None:
                break
            chosen = grown.tokens.index(token) if token in grown.tokens else None
            self.acceptance.learn(grown.logprobs, grown.shares, chosen, grown.familiar)
            if chosen is None or chosen >= grown.count:
                break
            node = grown.first + chosen
        # By expected times, which no single slow call upsets.
        costs, drafted = self.costs, self._round
        round_s = drafted.draft_s + costs.host.seconds(1) + costs.verify.seconds(len(drafted.kept))
        self.credit.earn(len(burst), round_s)

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """Takes note of what the round took."""
        costs = self.costs
        if not self._round.calls:
            costs.plain.learn([1], round_s)
        elif max(self._round.calls) <= HIGHEST_ROWS:
            self._learn_draft(draft_s)
            settled = costs.verify.settled
            factor = costs.verify.learn([len(self._round.kept)], verify_s)
            # The same model on the same text: what slows the one down slows the other down. At first, though, what was
            # measured beforehand is put right, and that says nothing of the other.
            if settled:
                costs.plain.scale(factor)
            costs.host.learn([1], round_s - draft_s - verify_s)

    def _learn_draft(self, draft_s: float) -> None:
        """Only their time together is known: what takes longer than expected does so in both kinds of passes."""
        costs, (behind, *levels) = self.costs, self._round.calls
        ratio, first_s = draft_s / self._round.draft_s, costs.catch_up.seconds(behind)
        costs.draft.learn(levels, ratio * (self._round.draft_s - first_s))
        costs.catch_up.learn([behind], ratio * first_s)

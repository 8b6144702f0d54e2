"""Tree size of the method `auto`: how much a round drafts, and from which source, for most committed tokens a second.

Time has a price: the tokens that the run commits a second. A level is drafted and a node kept only where it is expected
to bring more than its time is worth, and no round may lose more than the text has credit for (`loss_limit`). Guesses
come from a draft model and from the text's own past (`lookup_guess`), which costs no draft pass. DynaTree's rules have
cut the model's tree before. Knows probabilities and costs, and neither models nor clocks.
"""

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Literal, TypeAlias

from decoder.draft.suffix_automaton import SuffixAutomaton
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import HIGHEST_ROWS, Costs
from decoder.draft.tree_size.drafted_round import DraftedRound, Grown, LookedUp, most_worth
from decoder.draft.tree_size.lookup_guess import LookupGuess, acceptance_of_lookups, chain_gain, draft_adds
from decoder.draft.tree_size.loss_limit import CREDIT_OF_LOOKUPS, LONGEST_CHAIN, LossLimit

Way: TypeAlias = Literal["plain", "lookup", "draft"]
"""How a round drafts: not at all, by lookups alone, or by the draft model and lookups."""
MOST_NODES = HIGHEST_ROWS - 1
"""Most nodes that a round keeps."""
MOST_TRIED = 4 * MOST_NODES
"""Lookups add to no tree that has more nodes; the best are kept."""
FORESIGHT = 0.9
"""A level costs as if time were cheaper by this: it opens the way to further levels."""
REMEMBERED = 4096
"""Tokens of a prompt, the newest, in which repetitions are looked for."""
_SLOPE_ROWS = 8


class TreeSizeController:
    """Decides for one text, round by round; learns from each round. A path's probability is that of all its nodes."""

    def __init__(
        self,
        costs: Costs,
        acceptance: AcceptanceModel,
        text: Sequence[int] = (),
    ) -> None:
        """Begins a text, which adds to the costs and to what is known of the draft's guesses.

        Of the text that is there already the latest `REMEMBERED` tokens count.
        """
        self.acceptance = acceptance
        self.lookups = acceptance_of_lookups()
        """Of this text alone: one repeats itself and another does not."""
        self.credit = LossLimit(costs, acceptance)
        self.lookup_credit = LossLimit(costs, self.lookups, CREDIT_OF_LOOKUPS)
        """Loss limit of rounds that draft by lookups alone."""
        self.costs = costs
        self._repeats = SuffixAutomaton(text[-REMEMBERED:])
        self._unread: list[int] = []
        """Committed tokens that repeats do not hold yet."""
        self._skipped = 0
        """Tokens that lookups alone have brought since the draft ran."""
        self._round = DraftedRound([self._repeats.here])

    def way(self, behind: int | None, guess: LookupGuess | None) -> Way:
        """The way in which the next round drafts; called once a round.

        Args:
            behind: Rows that the draft has to catch up; None: there is no draft.
            guess: What the past guesses after the text; None: nothing.
        """
        if guess is not None and self._pays_alone(behind, guess):
            return "lookup"
        if behind is not None and self.drafts(behind):
            return "draft"
        self._round = DraftedRound([self._repeats.here])
        if guess is not None:
            self._round.looked_up[0] = LookedUp(guess, 1, ())
        return "plain"

    def drafts(self, behind: int) -> bool:
        """Whether the next round drafts by the draft model, with these rows to catch up; called once a round."""
        missed = behind - self._skipped
        probes = self.credit.probe_due(missed)
        if probes or self.credit.may_draft:
            # Not round by round: without a draft, a round must cost no more than one of `ar`.
            self._repeats.extend(self._unread)
            self._unread.clear()
            self._begin(self.credit)
            self._round.calls, self._round.missed = [behind], missed
            self._round.draft_s = self.costs.catch_up.seconds(behind)
            if probes or self._affordable(2):
                self._skipped = 0
                return True
        self._round = DraftedRound([self._repeats.here])
        return False

    def _pays_alone(self, behind: int | None, guess: LookupGuess) -> bool:
        """Whether the next round drafts by lookups alone, which is begun then."""
        if self.credit.plain_due:
            return False
        costs, before = self.costs, self._round
        self._begin(self.lookup_credit)
        drafted = self._round
        probabilities = guess.chain(drafted.row_price)
        added_s = costs.host.seconds(1) - costs.plain_s()
        more_s = [
            seconds + added_s
            for seconds in costs.verify.by_rows(1 + len(probabilities))[2:]
            if seconds <= drafted.limit_s
        ]
        drafted.alone = chain_gain(probabilities, drafted.price, more_s) > 0 and not self._draft_adds(
            behind, probabilities
        )
        if not drafted.alone:
            self._round = before
        return drafted.alone

    def _draft_adds(self, behind: int | None, probabilities: Sequence[float]) -> bool:
        """Whether the draft is worth its time beside lookups with these acceptance probabilities."""
        if behind is None or not self.credit.may_draft:
            return False
        levels_s = chain([self.costs.catch_up.seconds(behind)], repeat(self.costs.draft.seconds(1), LONGEST_CHAIN - 1))
        first, _ = self.acceptance.usual
        return draft_adds(probabilities, first, self._round.price, self._round.row_price, levels_s)

    def _begin(self, credit: LossLimit) -> None:
        """A round that risks this credit."""
        costs, price = self.costs, self.credit.price
        slope_s = costs.verify.seconds(1 + _SLOPE_ROWS) - costs.verify.seconds(1)
        self._round = DraftedRound(
            [self._repeats.here],
            limit_s=(1 + credit.stake) * costs.plain_s() - costs.host.seconds(1),
            price=price,
            row_price=price * slope_s / _SLOPE_ROWS,
        )

    @property
    def probabilities(self) -> Sequence[float]:
        """The probability of each of the round's nodes to be right."""
        return self._round.probabilities

    @property
    def missed(self) -> int:
        """Tokens that have come by plain rounds since the draft ran, and one; of a round that the draft drafts."""
        return self._round.missed

    def _affordable(self, rows: int, level_s: float = 0.0) -> bool:
        """Whether a verification of so many rows is, after the draft's calls so far and one that takes `level_s`."""
        return self.costs.verify.seconds(rows) + level_s + self._round.draft_s <= self._round.limit_s

    def probe_draft(self, guesses: Sequence[tuple[Sequence[int], Sequence[float]]], text: Sequence[int]) -> None:
        """Records the draft's guesses for the latest tokens of a text that were decoded without it.

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
        """The nodes of a level that the draft gives children; none where that does not pay."""
        drafted, draft = self._round, self.costs.draft
        price, row_price = drafted.price * FORESIGHT, drafted.row_price * FORESIGHT
        first, second = self.acceptance.usual
        probabilities = [drafted.probabilities[node] for node in parents]
        gains = [
            max(0.0, probability * first - row_price) + max(0.0, probability * second - row_price)
            for probability in probabilities
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
        drafted.grown[parent] = Grown(tokens, logprobs, familiar, shares, len(drafted.probabilities), count)
        probability = drafted.probabilities[parent]
        drafted.places += places[:count]
        drafted.probabilities += [probability * share for share in shares[:count]]
        self.acceptance.see(shares, count)

    def looked_up(self, parent: int, guess: LookupGuess) -> tuple[list[int], list[float]]:
        """A node gets those of the past's guesses as children that it does not have and that may pay.

        They are the newest nodes. Returns their tokens, and the probability of each after the node.
        """
        drafted, tokens, shares = self._round, list[int](), list[float]()
        grown, above, first = drafted.grown.get(parent), drafted.probabilities[parent], len(drafted.probabilities)
        beside = grown.beside(guess.tokens, guess.shares) if grown else guess.shares
        for token, share in zip(guess.tokens, beside, strict=False):
            there = grown is not None and token in grown.tokens[: grown.count]
            # Where rows cost nothing all pay, but a probability of 0 has no logarithm.
            pays = share > 0 and above * share >= drafted.row_price
            if not there and pays and first <= MOST_TRIED:
                tokens.append(token)
                shares.append(share)
        drafted.looked_up[parent] = LookedUp(guess, first, tokens)
        # The draft may go on only after nodes whose parents it was asked about.
        place = drafted.places[parent]
        drafted.places += self._repeats.ahead(place, tokens)[0] if grown else [place] * len(tokens)
        drafted.probabilities += [above * share for share in shares]
        return tokens, shares

    def keep(self) -> list[int]:
        """The root and the nodes that are worth verifying, in their order; parents are among them."""
        drafted, left_s = self._round, self._round.limit_s - self._round.draft_s
        _, *verify_s = self.costs.verify.by_rows(len(drafted.probabilities))
        while len(verify_s) > 1 and verify_s[-1] > left_s:
            verify_s.pop()
        drafted.kept = [0, *(node + 1 for node in most_worth(drafted.probabilities[1:], drafted.price, verify_s))]
        return drafted.kept

    def learn(self, burst: Sequence[int]) -> None:
        """Records the target's choices from the root on: the accepted tokens and the bonus token."""
        self._unread += burst
        self._learn_guesses(burst)
        costs, drafted = self.costs, self._round
        # By expected times, which no single slow call upsets.
        round_s = drafted.draft_s + costs.host.seconds(1) + costs.verify.seconds(len(drafted.kept))
        if drafted.calls:
            self.credit.earn(len(burst), round_s)
        elif drafted.alone:
            self._skipped += len(burst)
            self.credit.go_without(len(burst), round_s)
            self.lookup_credit.earn(len(burst), round_s)
        else:
            self.credit.wait(len(burst))
            self.lookup_credit.wait(len(burst))

    def _learn_guesses(self, burst: Sequence[int]) -> None:
        drafted, node = self._round, 0
        for token in burst:
            following: int | None = None
            if found := drafted.looked_up.get(node):
                guess = found.guess
                self.lookups.learn(guess.logprobs, guess.shares, _place(token, guess.tokens), guess.familiar)
                following = found.first + found.tokens.index(token) if token in found.tokens else None
            if grown := drafted.grown.get(node):
                chosen = _place(token, grown.tokens)
                self.acceptance.learn(grown.logprobs, grown.shares, chosen, grown.familiar)
                following = grown.first + chosen if chosen is not None and chosen < grown.count else following
            if following is None:
                break
            node = following

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """Records the times of the round, in seconds."""
        costs, drafted = self.costs, self._round
        if not drafted.calls and not drafted.alone:
            costs.plain.learn([1], round_s)
        elif max(drafted.calls, default=0) <= HIGHEST_ROWS:
            passes_s = draft_s if drafted.calls else 0.0
            if drafted.calls:
                self._learn_draft(draft_s)
            settled = costs.verify.settled
            factor = costs.verify.learn([len(drafted.kept)], verify_s)
            # The same model on the same text: what slows the one down slows the other down. At first, though, what was
            # measured beforehand is put right, and that says nothing of the other.
            if settled:
                costs.plain.scale(factor)
            costs.host.learn([1], round_s - passes_s - verify_s)

    def _learn_draft(self, draft_s: float) -> None:
        """Only their time together is known: what takes longer than expected does so in both kinds of passes."""
        costs, (behind, *levels) = self.costs, self._round.calls
        ratio, first_s = draft_s / self._round.draft_s, costs.catch_up.seconds(behind)
        costs.draft.learn(levels, ratio * (self._round.draft_s - first_s))
        costs.catch_up.learn([behind], ratio * first_s)


def _place(token: int, tokens: Sequence[int]) -> int | None:
    """Index of a token among these; None where it is absent."""
    return tokens.index(token) if token in tokens else None

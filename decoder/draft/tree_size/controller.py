"""Tree size of `auto`: how many nodes a round drafts, and from which source, for the most tokens per second. Time has a
price: the number of tokens that the run usually commits in this time. A level is drafted, or a node verified, if its
expected tokens exceed the price of its time, and if the loss limit and DynaTree's growth rule allow it.
"""

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from math import exp
from typing import Literal, TypeAlias

from decoder.draft.suffix_automaton import SuffixAutomaton
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import HIGHEST_ROWS, Costs
from decoder.draft.tree_size.drafted_round import (
    DraftedRound,
    LookupChildren,
    LookupGuess,
    LookupPauses,
    ModelGuesses,
    acceptance_of_lookups,
    chain_gain,
    draft_adds,
    most_worth,
)
from decoder.draft.tree_size.following_rounds import MOST_FOLLOWING, TIMED, FollowingRounds, path_limits
from decoder.draft.tree_size.loss_limit import CREDIT_OF_LOOKUPS, LONGEST_CHAIN, LossLimit
from decoder.tree_rules import TreeRule

DraftSource: TypeAlias = Literal["plain", "lookup", "draft"]
MOST_NODES = HIGHEST_ROWS - 1
MOST_TRIED = 4 * MOST_NODES
"""Once a tree has this many drafted nodes, it gets no further lookup guesses; the best nodes are selected later."""
REMEMBERED = 4096
"""Number of tokens at the end of the prompt that are searched for repetitions."""
_SHORTEST_S = 1e-9
"""Lower bound on the lookup time that is learnt: the measured time is a difference, which may be negative."""
_SLOPE_ROWS = 8
"""The price of one more verification row is averaged over this many additional rows."""


class TreeSizeController:
    def __init__(
        self,
        costs: Costs,
        acceptance: AcceptanceModel,
        text: Sequence[int] = (),
        pauses: LookupPauses | None = None,
    ) -> None:
        """The rounds of the text update `costs` and `acceptance`. The default of `pauses` is for greedy decoding."""
        self.acceptance = acceptance
        self.lookups = acceptance_of_lookups()
        """Acceptance of lookup guesses, for this text only, since texts differ in how much they repeat."""
        self.credit = LossLimit(costs, acceptance)
        self.pauses = pauses or LookupPauses()
        self.lookup_credit = LossLimit(costs, self.lookups, CREDIT_OF_LOOKUPS)
        """Loss limit of rounds that draft by lookups alone."""
        self.costs = costs
        self._repeats = SuffixAutomaton(text[-REMEMBERED:])
        self._unread: list[int] = []
        """Committed tokens that are not yet in `_repeats`."""
        self._skipped = 0
        """Tokens committed by lookup-only rounds since the draft model's last round."""
        self._round = DraftedRound([self._repeats.here])
        self._following = FollowingRounds()
        self._until_probe = 0
        """Number of plain rounds after the latest decision until a probe is due."""
        self._plain_left = self._plain_rounds = 0
        """Number of further rounds that may be plain without a decision, and number of rounds that have been."""

    def stay_plain(self) -> bool:
        """Whether the next round is plain like the previous one, without a decision; to be called once per round."""
        stays = self._plain_left > 0 and self.pauses.paused
        if stays:
            self._plain_left -= 1
            self._plain_rounds += 1
            self.pauses.skip_round()
        else:
            if rounds := self._plain_rounds:  # each of which has committed one token
                self.credit.wait(rounds, rounds)
                self.lookup_credit.wait(rounds, rounds)
            self._plain_left = self._plain_rounds = 0
        return stays

    def follow(self, rule: TreeRule) -> TreeRule | None:
        """The rule of the next round if this round uses the latest decision; None if it needs a new decision. To be
        called once per round.
        """
        limited = self._following.next_rule(rule)
        if limited:
            self.pauses.skip_round()
        return limited

    def worth_verifying(self, path_logprobs: Sequence[float]) -> Sequence[int]:
        """Nodes that are worth verifying in a round that uses an earlier decision: ascending, with the root."""
        if len(path_logprobs) <= self._following.limits.rows:
            return range(len(path_logprobs))
        gains = list(map(exp, path_logprobs[1:]))
        verify_s = self.costs.verify.by_rows(len(path_logprobs))[1:]
        return [0, *(node + 1 for node in most_worth(gains, self.credit.price, verify_s))]

    def record_followed(self, calls: Sequence[int], rows: int) -> None:
        """`calls`: rows of each draft pass; `rows`: rows of the verification."""
        self._following.add(calls, rows)

    def source(self, behind: int | None, guess: LookupGuess | None) -> DraftSource:
        """The source of the next round's guesses; to be called once per round. `behind`: number of tokens that the
        draft model has not read; None if there is no model.
        """
        self._until_probe, self.pauses.price = 0, self.credit.price
        if guess is not None and self._pays_alone(behind, guess):
            return "lookup"
        if behind is not None and self.drafts(behind):
            return "draft"
        self._round = DraftedRound([self._repeats.here])
        if guess is not None:
            self._round.lookup_children[0] = LookupChildren(guess, 1, ())
        return "plain"

    def drafts(self, behind: int) -> bool:
        """Whether the next round uses the draft model; to be called at most once per round."""
        missed = behind - self._skipped
        self._until_probe = self.credit.patience - missed - 1
        probes = self.credit.probe_due(missed)
        if probes or self.credit.may_draft:
            # `_repeats` is extended only here, since a round without a draft must not cost more than a round of `ar`.
            # It is not used while lookups pause.
            if not self.pauses.paused:
                self._repeats.extend(self._unread)
                self._unread.clear()
            self._begin(self.credit, self.costs.host.seconds(1))
            self._round.calls, self._round.missed = [behind], missed
            self._round.draft_s = self.costs.catch_up.seconds(behind)
            if probes or self._affordable(2):
                self._skipped = 0
                return True
        self._round = DraftedRound([self._repeats.here])
        return False

    def _pays_alone(self, behind: int | None, guess: LookupGuess) -> bool:
        """Whether the next round drafts by suffix lookup alone; if so, begins that round."""
        if self.credit.plain_due:
            return False
        costs, before = self.costs, self._round
        host_s = costs.host.seconds(1) + costs.lookup.seconds(1)
        self._begin(self.lookup_credit, host_s)
        drafted = self._round
        probabilities = guess.chain(drafted.row_price)
        added_s = host_s - costs.plain_s()
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
        """Whether the draft model is worth its time if a lookup chain has these path probabilities."""
        if behind is None or not self.credit.may_draft:
            return False
        levels_s = chain([self.costs.catch_up.seconds(behind)], repeat(self.costs.draft.seconds(1), LONGEST_CHAIN - 1))
        first, _ = self.acceptance.usual
        return draft_adds(probabilities, first, self._round.price, self._round.row_price, levels_s)

    def _begin(self, credit: LossLimit, host_s: float) -> None:
        """Begins a round whose gain or loss changes `credit`. `host_s`: the round's time outside passes."""
        costs, price, plain_s = self.costs, self.credit.price, self.costs.plain_s()
        slope_s = costs.verify.seconds(1 + _SLOPE_ROWS) - costs.verify.seconds(1)
        self._round = DraftedRound(
            [self._repeats.here],
            limit_s=(1 + credit.stake) * plain_s - host_s,
            price=price,
            row_price=price * slope_s / _SLOPE_ROWS,
        )

    @property
    def probabilities(self) -> Sequence[float]:
        """Path probability of each node of the round."""
        return self._round.probabilities

    @property
    def missed(self) -> int:
        """Number of tokens of plain rounds since the last round that used the draft model, plus 1; updated when a round
        uses the model.
        """
        return self._round.missed

    def _affordable(self, rows: int, level_s: float = 0.0) -> bool:
        """Whether the round's time limit allows a draft pass of `level_s`, then a verification of `rows` rows."""
        return self.costs.verify.seconds(rows) + level_s + self._round.draft_s <= self._round.limit_s

    def probe_draft(self, guesses: Sequence[tuple[Sequence[int], Sequence[float]]], text: Sequence[int]) -> None:
        """Learns from the draft's guesses (best tokens, log-probabilities) for each token of `text`, which was decoded
        without the draft. Earlier tokens are not used, since the acceptance of guesses for them predicts little.
        """
        hits = 0
        for (tokens, logprobs), token in zip(guesses, text, strict=True):
            shares = self.acceptance.shares(logprobs)
            self.acceptance.learn(logprobs, shares, tokens.index(token) if token in tokens else None)
            self.acceptance.see(shares, len(tokens))
            hits += token == tokens[0]
        paid = self.costs.catch_up.seconds(self._round.calls[0]) / self.costs.plain_s()
        self.credit.record_probe(hits / len(text), paid)

    def worth_growing(self, parents: Sequence[int]) -> list[int]:
        """Those of `parents` that are worth a pass of the draft model; none if no pass is worth its time."""
        drafted, draft = self._round, self.costs.draft
        (first, second), row_price, paths = self.acceptance.usual, drafted.row_price, drafted.probabilities
        gains = [
            max(0.0, paths[node] * first - row_price) + max(0.0, paths[node] * second - row_price) for node in parents
        ]
        forwarded = [parents[index] for index in most_worth(gains, drafted.price, draft.by_rows(len(gains)))]
        level_s = draft.seconds(len(forwarded))
        if not forwarded or not self._affordable(len(drafted.calls) + 2, level_s):
            return []
        drafted.calls.append(len(forwarded))
        drafted.draft_s += level_s
        return forwarded

    def add_children(
        self, parent: int, tokens: Sequence[int], logprobs: Sequence[float], breadth: Callable[[float], int]
    ) -> list[float]:
        """Adds the best tokens as children of `parent`, with the next node numbers; returns the children's acceptance
        probabilities. `breadth`: (acceptance probability of the first token) -> number of children.
        """
        drafted = self._round
        matches, familiar = [drafted.matches[parent]] * len(tokens), list[int]()
        if not self.pauses.paused:
            matches, familiar = self._repeats.ahead(drafted.matches[parent], tokens)
        shares = self.acceptance.shares(logprobs, familiar)
        count = min(breadth(shares[0]), len(tokens))
        drafted.model_guesses[parent] = ModelGuesses(
            tokens, logprobs, familiar, shares, len(drafted.probabilities), count
        )
        probability = drafted.probabilities[parent]
        drafted.matches += matches[:count]
        accepted = shares[:count]
        drafted.probabilities += [probability * share for share in accepted]
        self.acceptance.see(shares, count)
        return accepted

    def add_lookups(self, parent: int, guess: LookupGuess) -> tuple[list[int], list[float]]:
        """Adds the lookup guesses that are worth a verification row and are not yet children of `parent`, with the next
        node numbers; returns their tokens and acceptance probabilities.
        """
        drafted, tokens, shares = self._round, list[int](), list[float]()
        model_guesses, above, first = (
            drafted.model_guesses.get(parent),
            drafted.probabilities[parent],
            len(drafted.probabilities),
        )
        beside = model_guesses.beside(guess.tokens, guess.shares) if model_guesses else guess.shares
        for token, share in zip(guess.tokens, beside, strict=False):
            drafted_already = model_guesses is not None and token in model_guesses.tokens[: model_guesses.count]
            # A guess of probability 0 is left out even if a row costs nothing, since the tree needs the logarithm of
            # the probability.
            pays = share > 0 and above * share >= drafted.row_price
            if not drafted_already and pays and first <= MOST_TRIED:
                tokens.append(token)
                shares.append(share)
        drafted.lookup_children[parent] = LookupChildren(guess, first, tokens)
        # A node's match is needed only if the draft model reads the node, which requires that the model has read
        # `parent`. If the model has not read `parent`, the children's entries are placeholders.
        match = drafted.matches[parent]
        drafted.matches += self._repeats.ahead(match, tokens)[0] if model_guesses else [match] * len(tokens)
        drafted.probabilities += [above * share for share in shares]
        return tokens, shares

    def keep(self) -> list[int]:
        """Nodes worth verifying, ascending; if a node is among them, its parent is too."""
        drafted, left_s = self._round, self._round.limit_s - self._round.draft_s
        _, *verify_s = self.costs.verify.by_rows(len(drafted.probabilities))
        while len(verify_s) > 1 and verify_s[-1] > left_s:
            verify_s.pop()
        drafted.kept = [0, *(node + 1 for node in most_worth(drafted.probabilities[1:], drafted.price, verify_s))]
        return drafted.kept

    def learn(self, burst: Sequence[int]) -> None:
        """`burst`: the round's accepted tokens, then the bonus token."""
        self._unread += burst
        if self._plain_rounds or self._following.learn(len(burst)):
            return
        self.pauses.learn(self._learn_guesses(burst))
        costs, drafted = self.costs, self._round
        # Expected times are used instead of measured times, so that a single slow call has little effect.
        round_s = drafted.draft_s + costs.host.seconds(1) + costs.verify.seconds(len(drafted.kept))
        if drafted.lookup_children:
            round_s += costs.lookup.seconds(1)
        if drafted.calls:
            self._learn_followed()
            self.credit.earn(len(burst), round_s)
            self._let_follow(round_s)
        elif drafted.alone:
            self._skipped += len(burst)
            self.credit.go_without(len(burst), round_s)
            self.lookup_credit.earn(len(burst), round_s)
        else:
            self.credit.wait(len(burst))
            self.lookup_credit.wait(len(burst))
            if self.pauses.paused and not self.credit.may_pay:
                self._plain_left = min(MOST_FOLLOWING, self._until_probe)

    def _learn_followed(self) -> None:
        """Updates credit and costs with the rounds that used the decision before this one."""
        costs, past = self.costs, self._following.take()
        if not past:
            return
        models_s = sum(sum(self._draft_s(each.calls)) + costs.verify.seconds(each.rows) for each in past)
        tokens = sum(followed.tokens for followed in past)
        self.credit.earn(tokens, models_s + len(past) * costs.host.seconds(1), len(past))
        for followed in past[-TIMED:]:
            if followed.times_s:
                self._learn_times(followed.calls, followed.rows, *followed.times_s)

    def _let_follow(self, round_s: float) -> None:
        """Lets further rounds use the decision of a round that takes `round_s`, while the credit allows it. No round
        does so while lookups draft or costs are not settled.
        """
        costs, drafted = self.costs, self._round
        if not costs.verify.settled or not self.credit.may_pay or not self.pauses.paused:
            return
        verify_prices = [drafted.price * seconds for seconds in costs.verify.by_rows(1 + _SLOPE_ROWS)[1:]]
        limits = path_limits(self.acceptance.usual, drafted.price * costs.draft.seconds(1), verify_prices)
        self._following.begin(limits, self.credit.tokens, max(1.0, round_s / costs.plain_s()))

    def _learn_guesses(self, burst: Sequence[int]) -> int:
        """Updates the acceptance models; returns the number of tokens that were guessed only by lookup."""
        drafted, node, looked_up = self._round, 0, 0
        for token in burst:
            following: int | None = None
            if lookups := drafted.lookup_children.get(node):
                guess = lookups.guess
                self.lookups.learn(guess.logprobs, guess.shares, _index(token, guess.tokens), guess.familiar)
                following = lookups.first + lookups.tokens.index(token) if token in lookups.tokens else None
                # A plain round drafts nothing; a right guess then shows that lookup would have added a token.
                looked_up += following is not None or (not drafted.model_guesses and token == guess.tokens[0])
            if model_guesses := drafted.model_guesses.get(node):
                chosen = _index(token, model_guesses.tokens)
                self.acceptance.learn(model_guesses.logprobs, model_guesses.shares, chosen, model_guesses.familiar)
                following = (
                    model_guesses.first + chosen if chosen is not None and chosen < model_guesses.count else following
                )
            if following is None:
                break
            node = following
        return looked_up

    def record_times(self, draft_s: float, verify_s: float, round_s: float) -> None:
        drafted, times = self._round, (draft_s, verify_s, round_s)
        if self._plain_rounds:
            return
        if followed := self._following.current:
            followed.times_s = times
        elif drafted.calls or drafted.alone:
            self._learn_times(drafted.calls, len(drafted.kept), *times, looked_up=bool(drafted.lookup_children))
        else:
            self.costs.plain.learn([1], round_s)

    def _learn_times(
        self,
        calls: Sequence[int],
        rows: int,
        draft_s: float,
        verify_s: float,
        round_s: float,
        *,
        looked_up: bool = False,
    ) -> None:
        """`looked_up`: whether the round has lookup guesses; its draft passes then count with their expected time."""
        costs = self.costs
        if max(calls, default=0) > HIGHEST_ROWS:
            return
        settled = costs.verify.settled
        factor = costs.verify.learn([rows], verify_s)
        # The curve of verifications and the curve of plain rounds both describe the target's time on this text, so
        # a slowdown affects both curves. In the first rounds, however, `factor` corrects errors of the initial
        # measurement of verifications, which do not concern the curve of plain rounds.
        if settled:
            costs.plain.scale(factor)
        if looked_up:
            lookup_s = round_s - sum(self._draft_s(calls)) - costs.host.seconds(1) - verify_s
            costs.lookup.learn([1], max(_SHORTEST_S, lookup_s))
            return
        if calls:
            self._learn_draft(calls, draft_s)
        costs.host.learn([1], round_s - draft_s - verify_s)

    def _learn_draft(self, calls: Sequence[int], draft_s: float) -> None:
        """Scales the expected times of all draft passes of a round by the same ratio."""
        first_s, levels_s = self._draft_s(calls)
        ratio = draft_s / (first_s + levels_s)
        self.costs.draft.learn(calls[1:], ratio * levels_s)
        self.costs.catch_up.learn(calls[:1], ratio * first_s)

    def _draft_s(self, calls: Sequence[int]) -> tuple[float, float]:
        """Expected seconds of a round's first draft pass, and of all its later draft passes together."""
        return sum(map(self.costs.catch_up.seconds, calls[:1])), sum(map(self.costs.draft.seconds, calls[1:]))


def _index(token: int, tokens: Sequence[int]) -> int | None:
    return tokens.index(token) if token in tokens else None

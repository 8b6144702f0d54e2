"""State of one round of `auto`: the guesses of draft model and lookup with their acceptance probabilities, the drafted
nodes, and the nodes worth verifying.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from decoder.draft.lookup import Continuation, rank_guesses
from decoder.draft.suffix_automaton import FAMILIARITY, LONGEST, SuffixMatch
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.sampling.noise import TokenNoise

SIBLINGS = 4
DEEPEST = 64
SHARPNESS, UNDRAFTED = 1.0, 2.0
"""Prior means in the acceptance model of lookup guesses. Exponent 1 leaves their shares unchanged. With log-weight 2,
the other tokens have more than three times the weight of a guess with share 1 in familiarity class 1.
"""


def acceptance_of_lookups() -> AcceptanceModel:
    return AcceptanceModel(SHARPNESS, UNDRAFTED)


class LookupGuess:
    """Lookup guesses for the next token after one node."""

    __slots__ = ("_acceptance", "_after", "_ahead", "_noise", "_position", "familiar", "logprobs", "shares", "tokens")

    def __init__(
        self, ahead: Continuation, acceptance: AcceptanceModel, position: int = 0, noise: TokenNoise | None = None
    ) -> None:
        """`noise` is None if the target's sampling noise is unknown or decoding is greedy."""
        if noise:
            best = rank_guesses(ahead, position, noise)[:SIBLINGS]
            tokens, logprobs = [token for token, _, _ in best], [score for _, _, score in best]
        else:
            following = ahead.following(SIBLINGS)
            tokens, logprobs = [token for token, _ in following], [math.log(share) for _, share in following]
        self.tokens = tokens
        self.logprobs = logprobs
        """Logarithm of each guess's share among the continuations, plus the token's noise if `noise` is given."""
        self.familiar = [FAMILIARITY[min(ahead.length + 1, LONGEST)]] * len(tokens) + [0]
        """Familiarity class of each guess, by the repeated suffix's length; the last entry is for all other tokens."""
        self.shares = acceptance.shares(self.logprobs, self.familiar)
        """Acceptance probability of each guess; the last entry is for all other tokens."""
        self._ahead, self._acceptance = ahead, acceptance
        self._position, self._noise = position, noise
        self._after = dict[int, LookupGuess | None]()

    def after(self, token: int) -> "LookupGuess | None":
        """Guesses for the token after `token`; None if `token` did not follow the suffix earlier in the text."""
        if token not in self._after:
            ahead = self._ahead.after(token)
            self._after[token] = (
                LookupGuess(ahead, self._acceptance, self._position + 1, self._noise) if ahead else None
            )
        return self._after[token]

    def chain(self, least: float) -> list[float]:
        """Path probabilities of the chain of best guesses, which ends before a path probability below `least`."""
        probabilities, probability = list[float](), 1.0
        guess: LookupGuess | None = self
        while guess is not None and len(probabilities) < DEEPEST:
            probability *= guess.shares[0]
            if probability < least:
                break
            probabilities.append(probability)
            guess = guess.after(guess.tokens[0])
        return probabilities


def chain_gain(probabilities: Sequence[float], price: float, seconds: Iterable[float]) -> float:
    """Net gain of a chain at its best length: expected tokens minus the price of their time; 0 if every length has a
    loss. `seconds`: additional time of a round with 1, 2, ... nodes, compared with a plain round.
    """
    best = tokens = 0.0
    for probability, more_s in zip(probabilities, seconds, strict=False):
        tokens += probability
        best = max(best, tokens - price * more_s)
    return best


def draft_adds(
    probabilities: Sequence[float], first: float, price: float, row_price: float, levels_s: Iterable[float]
) -> bool:
    """Whether the draft model's guesses, at positions where the lookup chain fails, are expected to gain more tokens
    than the model's passes (`levels_s`) and nodes (`row_price` tokens each) cost.
    """
    above, following, tokens, worth = 1.0, 0.0, 0.0, 0.0
    for level, level_s in enumerate(levels_s):
        probability = probabilities[level] if level < len(probabilities) else 0.0
        # `following` is the probability that the chain has failed at this level or an earlier level, and that the draft
        # model's first guesses are accepted from the failed level to this level.
        following = first * (following + above - probability)
        above = probability
        tokens += following
        worth += price * level_s + row_price
        if tokens > worth:
            return True
    return False


@dataclass(slots=True)
class ModelGuesses:
    """The draft's best tokens after a node, the first `count` of which are children."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    familiar: Sequence[int]
    """Familiarity class of each token; the last entry is for all other tokens."""
    shares: Sequence[float]
    """Acceptance probability of each token; the last entry is for all other tokens."""
    first: int
    """Node number of the first child; the other children have the next numbers."""
    count: int

    def beside(self, tokens: Sequence[int], probabilities: Sequence[float]) -> list[float]:
        """Acceptance probabilities of lookup guesses, given the model's guesses. A token that both guess gets the
        model's probability. The other lookup guesses share the probability that the model leaves to other tokens, in
        proportion to `probabilities`, whose last entry is for all tokens that lookup does not guess.
        """
        guesses = list(zip(tokens, probabilities, strict=False))
        # The lookup's probability of tokens outside `self.tokens` is computed as a sum, since 1 - p may round to 0.
        unknown = probabilities[-1] + sum(probability for token, probability in guesses if token not in self.tokens)
        return [
            self.shares[self.tokens.index(token)] if token in self.tokens else self.shares[-1] * probability / unknown
            for token, probability in guesses
        ]


@dataclass(slots=True)
class LookupChildren:
    """Lookup guesses after a node, and the children that only the lookup guessed."""

    guess: LookupGuess
    first: int
    tokens: Sequence[int]


@dataclass(slots=True)
class DraftedRound:
    """State of a round; `matches` and `probabilities` have one entry per node."""

    matches: list[SuffixMatch]
    """For each node, the longest suffix of (text, then the node's path) that occurs earlier in the text."""
    probabilities: list[float] = field(default_factory=lambda: [1.0])
    """Path probability of each node."""
    model_guesses: dict[int, ModelGuesses] = field(default_factory=dict)
    lookup_children: dict[int, LookupChildren] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    """Number of rows of each draft pass; the first pass reads text."""
    alone: bool = False
    missed: int = 0
    """Number of tokens of plain rounds since the last round that used the draft model, plus 1."""
    draft_s: float = 0.0
    kept: list[int] = field(default_factory=lambda: [0])
    limit_s: float = 0.0
    """Time limit of the round's passes, which bounds the loss if all guesses are rejected."""
    price: float = 0.0
    row_price: float = 0.0


def most_worth(gains: Sequence[float], price: float, seconds: Sequence[float]) -> list[int]:
    """Ascending indices of the items that maximise total gain minus the price of the total time; of items with equal
    gains, the first ones are preferred. `seconds`: total time of 0, 1, 2, ... items.
    """
    ranked = sorted(range(len(gains)), key=lambda index: -gains[index])
    best, count, tokens = -price * seconds[0], 0, 0.0
    for number, index in enumerate(ranked[: len(seconds) - 1], 1):
        tokens += gains[index]
        if (net := tokens - price * seconds[number]) > best:
            best, count = net, number
    return sorted(ranked[:count])


SEARCH_S = 0.00015
"""Approximate seconds of a search and its decision. Lookups pause while they add fewer tokens to a round than decoding
commits in this time.
"""
GREEDY_GAIN, SAMPLED_GAIN = 0.5, 0.12
"""Initial values of `gain`, in tokens per round; texts repeat themselves less in sampling than in greedy decoding."""
GAIN_STEP = 0.05
SEARCHED_EVERY = 8
"""During a pause, one of this many rounds searches the text."""


class LookupPauses:
    """A text that does not repeat itself is rarely searched, since a search takes time."""

    def __init__(self, first_gain: float = GREEDY_GAIN) -> None:
        self.price = 0.0
        """Price of one second, in tokens."""
        self.gain = first_gain
        """EMA of the number of tokens that lookups added to a round in which the text was searched."""
        self.allowed = True
        """Whether the method's parameters allow lookups."""
        self._searched = False
        self._unsearched = 0

    @property
    def paused(self) -> bool:
        """Whether lookups draft in few rounds, or in none if they are not allowed."""
        return not self.allowed or self.gain < SEARCH_S * self.price

    def next_round(self) -> bool:
        """Whether the text is searched in the next round; to be called once per round."""
        if self.paused and self._unsearched + 1 < SEARCHED_EVERY:
            self.skip_round()
        else:
            self._searched, self._unsearched = True, 0
        return self._searched

    def skip_round(self) -> None:
        self._searched = False
        self._unsearched += 1

    def learn(self, tokens: int) -> None:
        if self._searched:
            self.gain += GAIN_STEP * (tokens - self.gain)

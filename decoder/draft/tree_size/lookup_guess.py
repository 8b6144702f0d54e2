"""Guesses by suffix lookup with their recent acceptance probabilities, and whether a draft is worth its time besides.

A guess that followed a long suffix of the text each time is likelier right; how much so is learnt from the target's
choices. Knows neither trees nor models.
"""

import math
from collections.abc import Iterable, Sequence

from decoder.draft.lookup import Continuation
from decoder.draft.lookup_noise import ranked
from decoder.draft.suffix_automaton import KINDS, LONGEST
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.sampling.noise import TokenNoise

SIBLINGS = 4
"""Next tokens that are guessed after one node."""
DEEPEST = 64
"""Levels that are looked ahead."""
SHARPNESS, OTHERS = 1.0, 2.0
"""What learning begins with: shares are taken as probabilities, and other tokens weigh over three times as much as
one of the least familiar guesses."""


def acceptance_of_lookups() -> AcceptanceModel:
    """Prior of an acceptance model for lookups at the start of a text."""
    return AcceptanceModel(SHARPNESS, OTHERS)


class LookupGuess:
    """The next tokens after one place, as the past has them."""

    __slots__ = ("_acceptance", "_after", "_ahead", "_noise", "_position", "familiar", "logprobs", "shares", "tokens")

    def __init__(
        self, ahead: Continuation, acceptance: AcceptanceModel, position: int = 0, noise: TokenNoise | None = None
    ) -> None:
        """The best guesses for a position; `noise`: the target's; None: unknown, or greedy decoding."""
        if noise:
            found = ranked(ahead, position, noise)[:SIBLINGS]
            tokens, logprobs = [token for token, _, _ in found], [score for _, _, score in found]
        else:
            following = ahead.following(SIBLINGS)
            tokens, logprobs = [token for token, _ in following], [math.log(share) for _, share in following]
        self.tokens = tokens
        self.logprobs = logprobs
        """Of their shares among all that followed, and the noise."""
        self.familiar = [KINDS[min(ahead.length + 1, LONGEST)]] * len(tokens) + [0]
        """As `AcceptanceModel` takes it: how long a piece of the past each token would lengthen."""
        self.shares = acceptance.shares(self.logprobs, self.familiar)
        """Their probabilities, and then that of all others."""
        self._ahead, self._acceptance = ahead, acceptance
        self._position, self._noise = position, noise
        self._after = dict[int, LookupGuess | None]()

    def after(self, token: int) -> "LookupGuess | None":
        """Guesses after one of these tokens; None where the past ends or continued otherwise."""
        if token not in self._after:
            ahead = self._ahead.after(token)
            self._after[token] = (
                LookupGuess(ahead, self._acceptance, self._position + 1, self._noise) if ahead else None
            )
        return self._after[token]

    def chain(self, least: float) -> list[float]:
        """Probabilities of the path of the likeliest tokens, level by level, as long as they are `least` or more."""
        found, probability = list[float](), 1.0
        guess: LookupGuess | None = self
        while guess is not None and len(found) < DEEPEST:
            probability *= guess.shares[0]
            if probability < least:
                break
            found.append(probability)
            guess = guess.after(guess.tokens[0])
        return found


def chain_gain(probabilities: Sequence[float], price: float, seconds: Iterable[float]) -> float:
    """Most tokens that a chain of some length brings beyond the worth of its time; 0 where none pays.

    Args:
        probabilities: Of the path, level by level.
        price: Tokens that a second is worth.
        seconds: How much longer than a plain round takes one with 1, 2, ... of these nodes.
    """
    best = tokens = 0.0
    for probability, more_s in zip(probabilities, seconds, strict=False):
        tokens += probability
        best = max(best, tokens - price * more_s)
    return best


def draft_adds(
    probabilities: Sequence[float], first: float, price: float, row_price: float, levels_s: Iterable[float]
) -> bool:
    """Whether a draft is expected to gain more, where this chain is wrong, than its passes and nodes are worth.

    Args:
        probabilities: Of the chain, level by level.
        first: How likely a draft's first guess is right.
        price: Tokens that a second is worth.
        row_price: Tokens that the verification of one more node is worth.
        levels_s: Seconds of the draft's first pass, its second and so on.
    """
    above, following, tokens, worth = 1.0, 0.0, 0.0, 0.0
    for level, level_s in enumerate(levels_s):
        probability = probabilities[level] if level < len(probabilities) else 0.0
        # The draft goes on wherever the chain has come to its end, here or at a level before.
        following = first * (following + above - probability)
        above = probability
        tokens += following
        worth += price * level_s + row_price
        if tokens > worth:
            return True
    return False

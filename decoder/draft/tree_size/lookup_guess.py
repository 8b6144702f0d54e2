"""Lookup guesses with acceptance probabilities, which grow with the length of the repeated suffix, and whether a draft
model would pay beside them.
"""

import math
from collections.abc import Iterable, Sequence

from decoder.draft.lookup import Continuation
from decoder.draft.lookup_noise import rank_guesses
from decoder.draft.suffix_automaton import FAMILIARITY, LONGEST
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.sampling.noise import TokenNoise

SIBLINGS = 4
DEEPEST = 64
SHARPNESS, UNDRAFTED = 1.0, 2.0
"""Prior means: exponent 1 leaves the shares of guesses unchanged; with log-weight 2, all tokens that are not guessed
weigh more than three times a guess of familiarity class 1 whose share is 1.
"""


def acceptance_of_lookups() -> AcceptanceModel:
    return AcceptanceModel(SHARPNESS, UNDRAFTED)


class LookupGuess:
    """Guesses for the next token at one node."""

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
        """Log share among the continuations, plus the token's noise."""
        self.familiar = [FAMILIARITY[min(ahead.length + 1, LONGEST)]] * len(tokens) + [0]
        """Familiarity classes, by the length of the repeated suffix; the last entry is for all other tokens."""
        self.shares = acceptance.shares(self.logprobs, self.familiar)
        """Acceptance probabilities; the last entry is for all other tokens."""
        self._ahead, self._acceptance = ahead, acceptance
        self._position, self._noise = position, noise
        self._after = dict[int, LookupGuess | None]()

    def after(self, token: int) -> "LookupGuess | None":
        """None if nothing followed this token earlier in the text."""
        if token not in self._after:
            ahead = self._ahead.after(token)
            self._after[token] = (
                LookupGuess(ahead, self._acceptance, self._position + 1, self._noise) if ahead else None
            )
        return self._after[token]

    def chain(self, least: float) -> list[float]:
        """Path probabilities of the best guesses, down to `least`."""
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
    """Expected tokens minus the price of the time of the chain, cut to the best length; 0 if no length pays. `seconds`
    are those of a round with 1, 2, ... nodes beyond a plain round's.
    """
    best = tokens = 0.0
    for probability, more_s in zip(probabilities, seconds, strict=False):
        tokens += probability
        best = max(best, tokens - price * more_s)
    return best


def draft_adds(
    probabilities: Sequence[float], first: float, price: float, row_price: float, levels_s: Iterable[float]
) -> bool:
    """Whether a draft model's guesses, from where the lookup chain fails, gain more tokens than its passes (`levels_s`)
    and nodes (`row_price` tokens each) cost.
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

"""Acceptance model: the probability that the target chooses each of the draft's best tokens, over all texts of a pair.

Two numbers turn the draft's probabilities into acceptance probabilities: an exponent that sharpens or flattens them,
since greedy verification knows only the target's most probable token, and the weight of all tokens that were not
drafted. They begin from a prior, follow the text by Newton steps and forget old observations. A token that continues as
the text did before weighs more; the factor is learnt for each familiarity. Knows neither trees nor models.
"""

import math
from collections.abc import Sequence

from decoder.draft.suffix_automaton import FAMILIARITIES
from decoder.draft.tree_size.plan import PathProbabilities

SHARPNESS = 2.0
"""The exponent to begin with where the draft's own probabilities are told; 1 takes them as probabilities."""
OTHERS = -5.0
"""Logarithm of the weight of all other tokens to begin with."""
SURENESS = (2.0, 1.0)
"""Precision of the prior on these two."""
FAMILIAR = 0.8
"""Logarithm of the weight that each kind of familiarity adds to the last, to begin with."""
FAMILIAR_STEP = 0.2
_UNFAMILIAR, _MOST_FAMILIAR = math.exp(-1.0), math.exp(8.0)
MOST_GAINED = 64.0
"""Gains and losses beyond this are forgotten."""
USUAL = (0.6, 0.15)
"""Probabilities of a first and of a second guess to begin with."""
SEEN_BEFORE = 4.0
"""Nodes that this is worth."""
KEPT = 0.98
"""Decay factor of earlier observations, applied with each new one."""
_LEAST_LOGPROB = -60.0
_SHARPEST, _FLATTEST = 8.0, 0.1
_HEAVIEST, _LIGHTEST = 20.0, -40.0


class AcceptanceModel:
    """Acceptance statistics of one pair so far."""

    def __init__(self, sharpness: float = SHARPNESS, others: float = OTHERS) -> None:
        """Begins with an exponent, and with the logarithm of the weight of all other tokens."""
        self.sharpness = sharpness
        self.others = others
        self._heavier = [math.exp(FAMILIAR * familiarity) for familiarity in range(FAMILIARITIES)]
        """Factor on a token's weight, by its familiarity."""
        self._seen = SEEN_BEFORE
        self._sums = tuple(probability * SEEN_BEFORE for probability in USUAL)
        """Running sums of the probabilities of first and second guesses."""
        self.gained = 0.0
        """Tokens gained by drafting in all texts, beyond those of plain decoding in the same time."""
        self.paths = PathProbabilities()
        self._precision = (SURENESS[0], 0.0, SURENESS[1])
        """Of sharpness, of both together, of others."""

    def shares(self, logprobs: Sequence[float], familiar: Sequence[int] = ()) -> list[float]:
        """The probability that the target chooses each of a node's best tokens, and last any other token.

        Given that the node is accepted. Log-probabilities are the draft's, best first; `familiar` tells how familiar
        each of these tokens is, and last the likeliest other token; empty: not at all.
        """
        weights = [math.exp(self.sharpness * logprob) for logprob in logprobs]
        weights.append(math.exp(self.others))
        if familiar:
            weights = [weight * self._heavier[kind] for weight, kind in zip(weights, familiar, strict=True)]
        whole = sum(weights)
        return [weight / whole for weight in weights]

    def learn(
        self, logprobs: Sequence[float], shares: Sequence[float], chosen: int | None, familiar: Sequence[int] = ()
    ) -> None:
        """Records which of these tokens the target chose, by its index; None: another one. See `shares`."""
        if logprobs[-1] < _LEAST_LOGPROB:
            # A token that the draft rules out entirely would make infinite numbers of it.
            logprobs = [max(_LEAST_LOGPROB, logprob) for logprob in logprobs]
        *probabilities, other = shares
        mean = square = 0.0
        for probability, logprob in zip(probabilities, logprobs, strict=True):
            mean += probability * logprob
            square += probability * logprob * logprob
        ways = ((0.0 if chosen is None else logprobs[chosen]) - mean, (chosen is None) - other)
        one, both, two = self._precision
        one = SURENESS[0] + KEPT * (one - SURENESS[0]) + square - mean**2
        both = KEPT * both - mean * other
        two = SURENESS[1] + KEPT * (two - SURENESS[1]) + other * (1 - other)
        self._precision = one, both, two
        span = one * two - both**2
        self.sharpness += (two * ways[0] - both * ways[1]) / span
        self.others += (one * ways[1] - both * ways[0]) / span
        self.sharpness = min(_SHARPEST, max(_FLATTEST, self.sharpness))
        self.others = min(_HEAVIEST, max(_LIGHTEST, self.others))
        right = len(logprobs) if chosen is None else chosen
        for index, kind in enumerate(familiar):
            if kind:
                heavier = self._heavier[kind] * math.exp(FAMILIAR_STEP * ((index == right) - shares[index]))
                self._heavier[kind] = min(_MOST_FAMILIAR, max(_UNFAMILIAR, heavier))

    @property
    def usual(self) -> tuple[float, float]:
        """Recent means of the acceptance probabilities of a node's first and second guess."""
        first, second = self._sums
        return first / self._seen, second / self._seen

    def see(self, shares: Sequence[float], count: int) -> None:
        """Records the probabilities of a node's best tokens, `count` of which became nodes."""
        first, second = self._sums
        self._sums = KEPT * first + shares[0], KEPT * second + (shares[1] if count > 1 else 0.0)
        self._seen = KEPT * self._seen + 1

    def earn(self, tokens: float) -> None:
        """Records the gain of a round over plain decoding, in tokens; old rounds are forgotten."""
        self.gained = min(MOST_GAINED, max(-MOST_GAINED, self.gained + tokens))

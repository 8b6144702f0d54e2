"""Probability that the target accepts each of the draft's best tokens, learnt over all texts of a pair. The draft's
probabilities are raised to a power, since greedy verification accepts only the target's most probable token; all tokens
that were not drafted share one weight. Exponent and weight start from a prior and are updated by Newton steps, with
exponential decay. The weight of a token that continues a repetition has a factor, learnt for each familiarity class.
"""

import math
from collections.abc import Sequence

from decoder.draft.suffix_automaton import FAMILIARITIES
from decoder.draft.tree_size.plan import PathProbabilities

SHARPNESS = 2.0
"""Prior mean of the exponent; the value 1 would leave the draft's probabilities unchanged."""
UNDRAFTED = -5.0
"""Prior mean of the log-weight of all tokens that were not drafted, together."""
SURENESS = (2.0, 1.0)
"""Prior precisions of the exponent and of the log-weight."""
FAMILIAR = 0.8
"""A token that continues a repetition has a weight factor, initially exp(FAMILIAR * k) in familiarity class k."""
FAMILIAR_STEP = 0.2
_UNFAMILIAR, _MOST_FAMILIAR = math.exp(-1.0), math.exp(8.0)
MOST_GAINED = 64.0
"""Upper bound of the absolute value of `gained`."""
USUAL = (0.6, 0.15)
"""Prior mean acceptance probabilities of a node's first and second guess."""
PRIOR_COUNT = 4.0
"""Weight of the prior `USUAL`, in observed nodes."""
DECAY = 0.98
_LEAST_LOGPROB = -60.0
_SHARPEST, _FLATTEST = 8.0, 0.1
_HEAVIEST, _LIGHTEST = 20.0, -40.0


class AcceptanceModel:
    def __init__(self, sharpness: float = SHARPNESS, undrafted: float = UNDRAFTED) -> None:
        self.sharpness = sharpness
        self.undrafted = undrafted
        self._heavier = [math.exp(FAMILIAR * familiarity) for familiarity in range(FAMILIARITIES)]
        """Weight factor of each familiarity class."""
        self._count = PRIOR_COUNT
        self._sums = tuple(probability * PRIOR_COUNT for probability in USUAL)
        """Decayed sums of the acceptance probabilities of first and second guesses."""
        self.gained = 0.0
        """Tokens gained in all texts, compared with plain decoding in the same time."""
        self.speedup = 1.0
        self.paths = PathProbabilities()
        self._precision = (SURENESS[0], 0.0, SURENESS[1])
        """Upper triangle of the precision matrix of (sharpness, undrafted)."""

    def shares(self, logprobs: Sequence[float], familiar: Sequence[int] = ()) -> list[float]:
        """Acceptance probabilities of the draft's best tokens after an accepted node; the last entry is for all other
        tokens. `familiar`: familiarity class of each entry; empty if all classes are 0.
        """
        weights = [math.exp(self.sharpness * logprob) for logprob in logprobs]
        weights.append(math.exp(self.undrafted))
        if familiar:
            weights = [weight * self._heavier[kind] for weight, kind in zip(weights, familiar, strict=True)]
        whole = sum(weights)
        return [weight / whole for weight in weights]

    def log_shares(self, logprobs: Sequence[float]) -> list[float]:
        """Logarithms of all entries of `shares` but the last; only for tokens of familiarity class 0."""
        weights = [self.sharpness * logprob for logprob in logprobs]
        whole = math.log(math.exp(self.undrafted) + sum(map(math.exp, weights)))
        return [weight - whole for weight in weights]

    def learn(
        self, logprobs: Sequence[float], shares: Sequence[float], chosen: int | None, familiar: Sequence[int] = ()
    ) -> None:
        """`chosen`: index in `logprobs` of the token that the target chose; None if the token has no entry."""
        if logprobs[-1] < _LEAST_LOGPROB:
            # The draft's probability of a token may be 0. Its logarithm, minus infinity, would make the sums NaN.
            logprobs = [max(_LEAST_LOGPROB, logprob) for logprob in logprobs]
        *probabilities, other = shares
        mean = square = 0.0
        for probability, logprob in zip(probabilities, logprobs, strict=True):
            mean += probability * logprob
            square += probability * logprob * logprob
        gradient = ((0.0 if chosen is None else logprobs[chosen]) - mean, (chosen is None) - other)
        one, both, two = self._precision
        one = SURENESS[0] + DECAY * (one - SURENESS[0]) + square - mean**2
        both = DECAY * both - mean * other
        two = SURENESS[1] + DECAY * (two - SURENESS[1]) + other * (1 - other)
        self._precision = one, both, two
        determinant = one * two - both**2
        self.sharpness += (two * gradient[0] - both * gradient[1]) / determinant
        self.undrafted += (one * gradient[1] - both * gradient[0]) / determinant
        self.sharpness = min(_SHARPEST, max(_FLATTEST, self.sharpness))
        self.undrafted = min(_HEAVIEST, max(_LIGHTEST, self.undrafted))
        right = len(logprobs) if chosen is None else chosen
        for index, kind in enumerate(familiar):
            if kind:
                heavier = self._heavier[kind] * math.exp(FAMILIAR_STEP * ((index == right) - shares[index]))
                self._heavier[kind] = min(_MOST_FAMILIAR, max(_UNFAMILIAR, heavier))

    @property
    def usual(self) -> tuple[float, float]:
        """EMAs of the acceptance probabilities of a node's first and second guess."""
        first, second = self._sums
        return first / self._count, second / self._count

    def see(self, shares: Sequence[float], count: int) -> None:
        """Updates `usual`. `shares`: acceptance probabilities of guesses, of which the first `count` became nodes."""
        first, second = self._sums
        self._sums = DECAY * first + shares[0], DECAY * second + (shares[1] if count > 1 else 0.0)
        self._count = DECAY * self._count + 1

    def earn(self, tokens: float) -> None:
        self.gained = min(MOST_GAINED, max(-MOST_GAINED, self.gained + tokens))

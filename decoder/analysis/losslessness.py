"""Statistical check of sampled texts: whether the texts follow the target's distribution.

Sums over tokens or rounds are tested. With a lossless decoder, each term of a sum has mean 0 given all earlier terms (a
martingale), so z, which is the sum divided by the square root of the terms' total variance, is approximately standard
normal. This module knows neither models nor screens.
"""

import math
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from decoder.events import Draws, Round

Light: TypeAlias = Literal["grey", "green", "yellow", "red"]
"""Result of the check. grey: too few tokens; green: plausible; yellow: unlikely for a lossless decoder; red:
practically impossible for a lossless decoder.
"""

LEAST_TOKENS = 50
"""Least number of tokens for a result other than grey."""
LEAST_VARIANCE = 5.0
"""A sum of terms gives a result only if its variance is at least this number (in nats squared for surprises). With a
smaller variance, z may be far from normal if some tokens are improbable.
"""
YELLOW, RED = 2.5, 4.0
"""Thresholds of |z|. A lossless decoder exceeds the first threshold in 1 of 80 cases, and the second in 1 of 16,000."""


class Deviation(msgspec.Struct, frozen=True):
    """A sum of terms, each of which has mean 0, and the sum of the terms' variances."""

    total: float = 0.0
    variance: float = 0.0
    count: int = 0
    """Number of terms."""

    def plus(self, total: float, variance: float, count: int) -> "Deviation":
        """The sums with further terms added."""
        return Deviation(self.total + total, self.variance + variance, self.count + count)

    @property
    def z(self) -> float | None:
        """The sum in standard deviations; None if the variance is 0 or a sum is NaN or infinite."""
        z = self.total / math.sqrt(self.variance) if self.variance > 0 else math.nan
        return z if math.isfinite(z) else None


class Evidence(msgspec.Struct, frozen=True):
    """Test statistics over the rounds of one method."""

    surprise: Deviation = Deviation()
    """Sum over tokens of -ln p(y) - H(p), in nats: how much less probable the text is than expected."""
    top1: Deviation = Deviation()
    """Sum over tokens of [y is the most probable token] - max p: actual minus expected number of most probable tokens.
    """
    prediction: Deviation = Deviation()
    """Sum over rounds with sampled trees: number of committed tokens minus the number expected from the tree. The
    variance of a term is estimated as the term's square.
    """
    predicted_tokens: float = 0.0
    """Expected total number of tokens that the rounds with sampled trees yield."""
    came_tokens: int = 0
    """Actual total number of tokens that the rounds with sampled trees yielded."""

    @property
    def light(self) -> Light:
        """Result from `surprise` and `top1`, the sums over tokens. `prediction` is left out, since it tests the
        verifier's decisions, not the text.
        """
        if self.surprise.count < LEAST_TOKENS:
            return "grey"
        enough = [deviation for deviation in (self.surprise, self.top1) if deviation.variance >= LEAST_VARIANCE]
        scores = [abs(deviation.z) for deviation in enough if deviation.z is not None]
        return colour(max(scores)) if scores else "grey"


def colour(z: float) -> Light:
    """Result for one value of z, by how improbable the value is with a lossless decoder."""
    return "green" if abs(z) < YELLOW else "yellow" if abs(z) < RED else "red"


def weighed(evidence: Evidence, event: Round) -> Evidence:
    """The evidence with one more round; a round without statistics changes nothing."""
    verification = event.verification
    if verification is None:
        return evidence
    tokens = len(event.committed)
    evidence = structs.replace(
        evidence,
        surprise=evidence.surprise.plus(verification.surprise, verification.surprise_variance, tokens),
        top1=evidence.top1.plus(verification.top1, verification.top1_variance, tokens),
    )
    if verification.predicted_tokens is None:
        return evidence
    came = len(event.accepted) + 1
    off = came - verification.predicted_tokens
    return structs.replace(
        evidence,
        prediction=evidence.prediction.plus(off, off * off, 1),
        predicted_tokens=evidence.predicted_tokens + verification.predicted_tokens,
        came_tokens=evidence.came_tokens + came,
    )


class AtDepth(msgspec.Struct, frozen=True):
    """Sums over all nodes at one depth that have sampled children and that the verifier visited."""

    visits: int = 0
    """Number of visited nodes with sampled children."""
    accepted: int = 0
    """Number of visited nodes with an accepted sampled child."""
    l1: float = 0.0
    """Sum of L1 distances between the target's and the draft's distribution."""
    judged: int = 0
    """Number of visits by verifiers that compute an acceptance probability at each node."""
    acceptance: float = 0.0
    """Sum of the acceptance probabilities of the visits that `judged` counts."""
    bound: float = 0.0
    """Sum of alpha*, the upper bound of a lossless verifier's acceptance probability."""

    def plus(self, draws: Draws) -> "AtDepth":
        """The sums with one more visit."""
        return AtDepth(
            self.visits + 1,
            self.accepted + draws.accepted,
            self.l1 + draws.l1,
            self.judged + (draws.acceptance is not None),
            self.acceptance + (draws.acceptance or 0.0),
            self.bound + draws.bound,
        )

    @property
    def mean_l1(self) -> float:
        """Mean L1 distance of the target's and the draft's distribution, in [0, 2]."""
        return self.l1 / self.visits if self.visits else 0.0

    @property
    def share(self) -> float:
        """Acceptance rate: share of the visited nodes that have an accepted sampled child."""
        return self.accepted / self.visits if self.visits else 0.0

    @property
    def mean_acceptance(self) -> float | None:
        """Mean probability that the verifier accepts a sampled child; None for verifiers of whole paths."""
        return self.acceptance / self.judged if self.judged else None

    @property
    def mean_bound(self) -> float:
        """Mean of alpha*, the upper bound of a lossless verifier's acceptance probability."""
        return self.bound / self.visits if self.visits else 0.0


def by_draft_depth(levels: tuple[AtDepth, ...], event: Round) -> tuple[AtDepth, ...]:
    """Sums for each depth, with one more round added; the first entry is for children of the root."""
    path = event.verification.path if event.verification else []
    deeper = (*levels, *(AtDepth(),) * (len(path) - len(levels)))
    return tuple(level.plus(path[depth]) if depth < len(path) else level for depth, level in enumerate(deeper))

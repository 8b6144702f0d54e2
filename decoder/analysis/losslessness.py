"""What sampled rounds tell of verification as they add up: whether the text keeps to the target's distribution.

Under any lossless decoder each sum here is one of terms whose mean is 0 given all before them, so that its z, the sum
over the square root of its summed variances, is about standard normal. Knows neither models nor screens.
"""

import math
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from decoder.events import Draws, Round

Light: TypeAlias = Literal["grey", "green", "yellow", "red"]
"""Too little to tell; within chance; farther off than chance usually goes; practically impossible by chance."""

LEAST_TOKENS = 50
LEAST_VARIANCE = 5.0
"""Under these one improbable token weighs so much that z is far from normal. Of surprises in nats squared."""
YELLOW, RED = 2.5, 4.0
"""Chance alone takes |z| of one sum so far at 1 in 80 looks, and at 1 in 16,000."""


class Deviation(msgspec.Struct, frozen=True):
    """A sum of terms of mean 0, and the sum of their variances."""

    total: float = 0.0
    variance: float = 0.0
    count: int = 0
    """Terms."""

    def plus(self, total: float, variance: float, count: int) -> "Deviation":
        """With so many more terms."""
        return Deviation(self.total + total, self.variance + variance, self.count + count)

    @property
    def z(self) -> float | None:
        """Standard deviations off; None where nothing varied, or the sums are no numbers."""
        z = self.total / math.sqrt(self.variance) if self.variance > 0 else math.nan
        return z if math.isfinite(z) else None


class Evidence(msgspec.Struct, frozen=True):
    """All that the rounds of one method tell of its text."""

    surprise: Deviation = Deviation()
    """Over tokens, -ln p(y) - H(p): how much less probable the text is than it should be, in nats."""
    top1: Deviation = Deviation()
    """Over tokens, [y is the most probable] - max p: how much more often the most probable token came."""
    prediction: Deviation = Deviation()
    """Over rounds with drawn trees, tokens that came less those expected of the tree; variances are estimates, the
    squares of the terms."""
    predicted_tokens: float = 0.0
    """Over the same rounds."""
    came_tokens: int = 0

    @property
    def light(self) -> Light:
        """What both sums over tokens say; the prediction, which is of the verifier's coins, is not among them."""
        if self.surprise.count < LEAST_TOKENS:
            return "grey"
        enough = [each for each in (self.surprise, self.top1) if each.variance >= LEAST_VARIANCE]
        told = [abs(each.z) for each in enough if each.z is not None]
        return colour(max(told)) if told else "grey"


def colour(z: float) -> Light:
    """The verdict on a z: how improbable it is under a lossless decoder."""
    return "green" if abs(z) < YELLOW else "yellow" if abs(z) < RED else "red"


def weighed(evidence: Evidence, event: Round) -> Evidence:
    """The evidence after one more round; one that tells nothing of its distributions changes nothing."""
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
    """Sums over the nodes at one depth that verification came to and that had draws."""

    visits: int = 0
    accepted: int = 0
    """Visits after which a draw was accepted."""
    l1: float = 0.0
    judged: int = 0
    """Visits of a verifier whose acceptance is one of single nodes."""
    acceptance: float = 0.0
    bound: float = 0.0

    def plus(self, draws: Draws) -> "AtDepth":
        """With one more visit."""
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
        """Realised acceptance: the share of visits after which a draw was accepted."""
        return self.accepted / self.visits if self.visits else 0.0

    @property
    def mean_acceptance(self) -> float | None:
        """Mean probability that the verifier accepts one of the draws; None for verifiers that judge whole paths."""
        return self.acceptance / self.judged if self.judged else None

    @property
    def mean_bound(self) -> float:
        """Mean of alpha*, the largest acceptance probability of any lossless verifier."""
        return self.bound / self.visits if self.visits else 0.0


def by_draft_depth(levels: tuple[AtDepth, ...], event: Round) -> tuple[AtDepth, ...]:
    """The sums after one more round; the first is of the draws after the root."""
    path = event.verification.path if event.verification else []
    deeper = (*levels, *(AtDepth(),) * (len(path) - len(levels)))
    return tuple(level.plus(path[depth]) if depth < len(path) else level for depth, level in enumerate(deeper))

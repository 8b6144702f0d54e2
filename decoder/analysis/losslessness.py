"""Tests whether sampled texts follow the target's distribution. If the decoder is lossless, each term of a tested sum
has mean 0 given all earlier terms (a martingale), so z, the sum divided by the square root of its variance, is
approximately standard normal.
"""

import math
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from decoder.events import Draws, Round

Light: TypeAlias = Literal["grey", "green", "yellow", "red"]
"""grey: too little evidence; green: plausible; yellow: unlikely for a lossless decoder; red: practically impossible."""

LEAST_TOKENS = 50
LEAST_VARIANCE = 5.0
"""A sum with a smaller variance (in squared nats for `surprise`) is not used: its z may be far from normal."""
YELLOW, RED = 2.5, 4.0
"""A lossless decoder exceeds |z| = 2.5 in 1 of 80 cases, and |z| = 4 in 1 of 16,000."""


class Deviation(msgspec.Struct, frozen=True):
    total: float = 0.0
    variance: float = 0.0
    count: int = 0

    def plus(self, total: float, variance: float, count: int) -> "Deviation":
        return Deviation(self.total + total, self.variance + variance, self.count + count)

    @property
    def z(self) -> float | None:
        """`total` in standard deviations; None if the variance is 0 or a number is not finite."""
        z = self.total / math.sqrt(self.variance) if self.variance > 0 else math.nan
        return z if math.isfinite(z) else None


class Evidence(msgspec.Struct, frozen=True):
    surprise: Deviation = Deviation()
    """Sum over tokens y of -ln p(y) - H(p), in nats; p: the target's distribution, H(p): the entropy of p."""
    top1: Deviation = Deviation()
    """Sum over tokens y of b(y) - max p; b(y) is 1 if y is the most probable token, otherwise 0."""
    prediction: Deviation = Deviation()
    """Sum over sampled trees: committed minus expected tokens. The estimated variance of a term is its square."""
    predicted_tokens: float = 0.0
    came_tokens: int = 0

    @property
    def light(self) -> Light:
        """Result for the text. `prediction` does not affect it, since `prediction` tests the verifier's decisions."""
        if self.surprise.count < LEAST_TOKENS:
            return "grey"
        enough = [deviation for deviation in (self.surprise, self.top1) if deviation.variance >= LEAST_VARIANCE]
        scores = [abs(deviation.z) for deviation in enough if deviation.z is not None]
        return colour(max(scores)) if scores else "grey"


def colour(z: float) -> Light:
    return "green" if abs(z) < YELLOW else "yellow" if abs(z) < RED else "red"


def weighed(evidence: Evidence, event: Round) -> Evidence:
    """Returns `evidence` plus the statistics of a round; a round without statistics adds nothing."""
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
    visits: int = 0
    """Number of times that verification reached a node whose children are at this depth."""
    accepted: int = 0
    l1: float = 0.0
    judged: int = 0
    """Number of visits in rounds whose verifier computes an acceptance probability at each node."""
    acceptance: float = 0.0
    bound: float = 0.0
    """Sum over visits of alpha*, the highest acceptance probability that a lossless verifier can have."""

    def plus(self, draws: Draws) -> "AtDepth":
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
        return self.l1 / self.visits if self.visits else 0.0

    @property
    def share(self) -> float:
        return self.accepted / self.visits if self.visits else 0.0

    @property
    def mean_acceptance(self) -> float | None:
        return self.acceptance / self.judged if self.judged else None

    @property
    def mean_bound(self) -> float:
        return self.bound / self.visits if self.visits else 0.0


def by_draft_depth(levels: tuple[AtDepth, ...], event: Round) -> tuple[AtDepth, ...]:
    """Adds a round to `levels`, whose first entry is for the children of the root."""
    path = event.verification.path if event.verification else []
    deeper = (*levels, *(AtDepth(),) * (len(path) - len(levels)))
    return tuple(level.plus(path[depth]) if depth < len(path) else level for depth, level in enumerate(deeper))

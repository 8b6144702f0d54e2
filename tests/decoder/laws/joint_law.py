"""Statistical test whether texts follow a law; correct samplers pass it and wrong ones fail.

A text is a string of digits, one per token. The test fails in three cases: a text has probability 0, Pearson's distance
is too large, or the total variation exceeds its expected value plus a bound on chance deviations (McDiarmid 1989).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.stats import chi2

Law = Mapping[str, float]
"""Probability of each text."""
ALPHA = 1e-5
"""Largest false alarm rate of one test; for up to 100 tests together it stays below 1e-3."""
LEAST_EXPECTED = 5.0
"""Minimum expected count of a text; texts below it are pooled."""


@dataclass(frozen=True)
class Comparison:
    """Comparison of texts with a law."""

    texts: int
    impossible: int
    """Number of texts with probability 0."""
    distance: float
    """Total variation distance."""
    bound: float
    """Distance that a correct sampler exceeds with probability ALPHA / 2 at most."""
    chance: float
    """P-value of Pearson's distance under the law."""

    @property
    def fits(self) -> bool:
        """Whether the texts are compatible with the law."""
        return not self.impossible and self.distance <= self.bound and self.chance > ALPHA / 2


def compare(counts: Mapping[str, float], law: Law) -> Comparison:
    """Compares counts of texts with a law.

    Args:
        counts: Count of each text; at least one text.
        law: Probabilities that sum to 1.
    """
    whole = sum(counts.values())
    texts = law.keys() | counts.keys()
    apart = sum(abs(counts.get(text, 0) / whole - law.get(text, 0)) for text in texts) / 2
    expected = sum(math.sqrt(chance * (1 - chance) / whole) for chance in law.values()) / 2
    return Comparison(
        texts=int(whole),
        impossible=int(sum(count for text, count in counts.items() if not law.get(text))),
        distance=apart,
        bound=expected + math.sqrt(math.log(2 / ALPHA) / (2 * whole)),
        chance=_pearson(counts, law, whole),
    )


def _pearson(counts: Mapping[str, float], law: Law, whole: float) -> float:
    """P-value of Pearson's distance under the law; 1 if there are too few texts."""
    own = [text for text, chance in law.items() if whole * chance >= LEAST_EXPECTED]
    cells = [(counts.get(text, 0), whole * law[text]) for text in own]
    rest = whole - sum(count for count, _ in cells), whole - sum(mean for _, mean in cells)
    cells += [rest] if rest[1] >= LEAST_EXPECTED else []
    distance = sum((count - mean) ** 2 / mean for count, mean in cells)
    return float(chi2.sf(distance, len(cells) - 1)) if len(cells) > 1 else 1.0

"""What the check found, and what follows: whether the search brought anything, and what to decode with.

Pure; words are the screen's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.bench.statistics import Estimate

FOUND, SHIPPED, AUTO, CHAIN, PLAIN = "found", "shipped", "auto", "linear", "ar"
"""Who takes part; `FOUND` only where the search has found anything."""


@dataclass(frozen=True)
class Checked:
    """How fast everyone was on texts that the search has not seen."""

    texts: int
    speeds: Mapping[str, Estimate | None]
    """Tokens a second, by name; None: no text was plain decoding's."""
    ratios: Mapping[tuple[str, str], Estimate | None]
    """(one, other) -> how much faster one is than the other."""
    wrong: frozenset[str]
    """Who wrote a text that is not plain decoding's, and not by a near tie."""

    def faster(self, one: str, other: str) -> bool:
        """Whether one is faster than the other beyond noise."""
        found = self.ratios.get((one, other))
        return found is not None and found.low is not None and found.low > 1


@dataclass(frozen=True)
class Verdict:
    """What follows from a check."""

    gain: Estimate | None
    """How much faster what was found is than what is shipped; None: nothing was found, or it has no speed."""
    better: bool
    """Whether it is faster beyond noise."""
    keeps: bool
    """Whether it is worth keeping: at least as fast as what is shipped, as far as is known, and lossless."""
    fastest: str
    """What to decode with."""


def verdict(checked: Checked) -> Verdict:
    """The verdict; what is simpler is preferred to what is not faster beyond noise."""
    gain = checked.ratios.get((FOUND, SHIPPED))
    lossless = FOUND not in checked.wrong
    better = lossless and checked.faster(FOUND, SHIPPED)
    keeps = better or (lossless and gain is not None and gain.median >= 1)
    return Verdict(gain, better, keeps, _fastest(checked, FOUND if keeps else SHIPPED))


def _fastest(checked: Checked, tree: str) -> str:
    """Plain decoding, unless one that needs no tuning is faster; that, unless a tuned one is faster still."""
    best = PLAIN
    for name in (AUTO, tree, CHAIN):
        if name not in checked.wrong and checked.faster(name, best):
            best = name
    return best

"""What the check says: whether the search brought anything, and what to decode with. Pure; words are the screen's."""

from dataclasses import dataclass

from decoder.bench.statistics import Estimate
from decoder.tuning.check import AUTO, CHAIN, FOUND, PLAIN, SHIPPED, Checked


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

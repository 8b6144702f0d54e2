"""What the check found, and what follows: whether the search brought anything, and what to decode with.

Pure; words are the screen's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.analysis import interval
from decoder.analysis.interval import Interval

FOUND, SHIPPED, AUTO, CHAIN, SHIPPED_CHAIN, PLAIN = "found", "shipped", "auto", "linear", "shipped_chain", "ar"
"""Who takes part; `FOUND` only where the search has found anything, `SHIPPED_CHAIN` where `CHAIN` is another."""
NOT_SLOWER = 0.97
"""The least that the lower end of a gain's interval may be for a setting to be kept that is not faster beyond noise."""


@dataclass(frozen=True)
class Checked:
    """How fast everyone was on texts that the search has not seen."""

    texts: int
    speeds: Mapping[str, Interval | None]
    """Tokens a second, by name; None: no text was plain decoding's."""
    ratios: Mapping[tuple[str, str], Interval | None]
    """(one, other) -> how much faster one is than the other."""
    wrong: frozenset[str]
    """Who wrote a text that is not plain decoding's, and not by a near tie."""

    def faster(self, one: str, other: str) -> bool:
        """Whether one is faster than the other beyond noise."""
        return interval.verdict(self.ratios.get((one, other))) == "holds"


@dataclass(frozen=True)
class Verdict:
    """What follows from a check."""

    gain: Interval | None
    """How much faster what was found is than what is shipped; None: nothing was found, or it has no speed."""
    better: bool
    """Whether it is faster beyond noise."""
    keeps: bool
    """Whether it is worth keeping: lossless, and not slower than what is shipped."""
    keeps_chain: bool
    """The same of the chain, beside the shipped one."""
    fastest: str
    """What to decode with."""


def verdict(checked: Checked) -> Verdict:
    """The verdict; what is simpler is preferred to what is not faster beyond noise."""
    keeps = _keeps(checked, FOUND, SHIPPED)
    better = keeps and checked.faster(FOUND, SHIPPED)
    keeps_chain = _keeps(checked, CHAIN, SHIPPED_CHAIN)
    fastest = _fastest(checked, FOUND if keeps else SHIPPED)
    return Verdict(checked.ratios.get((FOUND, SHIPPED)), better, keeps, keeps_chain, fastest)


def _keeps(checked: Checked, found: str, shipped: str) -> bool:
    gain = checked.ratios.get((found, shipped))
    if gain is None or gain.low is None or found in checked.wrong:
        return False
    return gain.value >= 1 and gain.low >= NOT_SLOWER


def _fastest(checked: Checked, tree: str) -> str:
    """Plain decoding, unless one that needs no tuning is faster; that, unless a tuned one is faster still."""
    best = PLAIN
    for name in (AUTO, tree, SHIPPED_CHAIN, CHAIN):
        if name not in checked.wrong and checked.faster(name, best):
            best = name
    return best

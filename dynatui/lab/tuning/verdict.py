"""Conclusions of the check: whether the search gained anything, and the fastest setting.

All functions are pure; the screen shows the conclusions in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.analysis import interval
from decoder.analysis.interval import Interval

FOUND, SHIPPED, AUTO, CHAIN, SHIPPED_CHAIN, PLAIN = "found", "shipped", "auto", "linear", "shipped_chain", "ar"
"""Names of the check's contenders. `FOUND` takes part only if the search found a better tree than the shipped tree.
`SHIPPED_CHAIN` takes part only if the search found a better chain than the shipped chain; `CHAIN` is then the better
chain.
"""
NOT_SLOWER = 0.97
"""A setting is kept only if the lower end of its gain's interval is at least this value. A kept setting therefore need
not be faster beyond noise.
"""


@dataclass(frozen=True)
class Checked:
    """Speeds of the contenders on texts that the search has not used."""

    texts: int
    speeds: Mapping[str, Interval | None]
    """Tokens per second by contender; None if none of the contender's texts equals the text of plain decoding."""
    ratios: Mapping[tuple[str, str], Interval | None]
    """(one, other) -> ratio of contender `one`'s speed to contender `other`'s speed."""
    wrong: frozenset[str]
    """Contenders with a text that differs from the text of plain decoding by more than a near tie."""

    def faster(self, one: str, other: str) -> bool:
        """Whether the first contender is faster than the second beyond noise."""
        return interval.verdict(self.ratios.get((one, other))) == "holds"


@dataclass(frozen=True)
class Verdict:
    """Conclusions of a check."""

    gain: Interval | None
    """Ratio of the found setting's speed to the shipped setting's speed; None if one of the two speeds is unknown."""
    better: bool
    """Whether the found setting is kept, and is faster than the shipped setting beyond noise."""
    keeps: bool
    """Whether the found setting is kept: it is lossless, and not slower than the shipped setting (see `NOT_SLOWER`)."""
    keeps_chain: bool
    """Whether the found chain is kept in place of the shipped chain."""
    fastest: str
    """Contender with the best speed."""


def verdict(checked: Checked) -> Verdict:
    """Verdict of a check; of two settings, the simpler one wins unless the more complex one is faster beyond noise."""
    keeps = _keeps(checked, FOUND, SHIPPED)
    better = keeps and checked.faster(FOUND, SHIPPED)
    keeps_chain = _keeps(checked, CHAIN, SHIPPED_CHAIN)
    fastest = _fastest(checked, FOUND if keeps else SHIPPED)
    return Verdict(checked.ratios.get((FOUND, SHIPPED)), better, keeps, keeps_chain, fastest)


def _keeps(checked: Checked, searched: str, shipped: str) -> bool:
    gain = checked.ratios.get((searched, shipped))
    if gain is None or gain.low is None or searched in checked.wrong:
        return False
    return gain.value >= 1 and gain.low >= NOT_SLOWER


def _fastest(checked: Checked, tree: str) -> str:
    """Fastest contender. Contenders are compared in order, starting with plain decoding; a later contender replaces the
    best contender so far only if it is faster beyond noise.
    """
    best = PLAIN
    for name in (AUTO, tree, SHIPPED_CHAIN, CHAIN):
        if name not in checked.wrong and checked.faster(name, best):
            best = name
    return best

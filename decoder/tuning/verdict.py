"""Conclusions of the check: whether the search gained anything, and the fastest setting.

Pure functions; the screen puts the conclusions into words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.analysis import interval
from decoder.analysis.interval import Interval

FOUND, SHIPPED, AUTO, CHAIN, SHIPPED_CHAIN, PLAIN = "found", "shipped", "auto", "linear", "shipped_chain", "ar"
"""Contenders of the check: `FOUND` if the search found a better tree, `SHIPPED_CHAIN` if it is not `CHAIN`."""
NOT_SLOWER = 0.97
"""A setting that is not faster beyond noise is still kept if the lower end of its gain's interval is at least this."""


@dataclass(frozen=True)
class Checked:
    """Speeds on texts that the search has not seen."""

    texts: int
    speeds: Mapping[str, Interval | None]
    """Tokens per second by contender; None if no text equals plain decoding's."""
    ratios: Mapping[tuple[str, str], Interval | None]
    """(one, other) -> ratio of the first contender's speed to the second's."""
    wrong: frozenset[str]
    """Contenders with a text that differs from plain decoding's by more than a near tie."""

    def faster(self, one: str, other: str) -> bool:
        """Whether the first contender is faster than the second beyond noise."""
        return interval.verdict(self.ratios.get((one, other))) == "holds"


@dataclass(frozen=True)
class Verdict:
    """Conclusions of a check."""

    gain: Interval | None
    """Ratio of the found setting's speed to the shipped one's; None if either is missing or has no speed."""
    better: bool
    """Whether the found setting is faster beyond noise."""
    keeps: bool
    """Whether the found setting is kept: it is lossless, and not slower than the shipped one."""
    keeps_chain: bool
    """Whether the found chain is kept beside the shipped one."""
    fastest: str
    """Contender with the best speed."""


def verdict(checked: Checked) -> Verdict:
    """Verdict of a check; the simpler setting wins if the other is not faster beyond noise."""
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
    """Fastest contender: beginning with plain decoding, each replaces the best so far only if faster beyond noise."""
    best = PLAIN
    for name in (AUTO, tree, SHIPPED_CHAIN, CHAIN):
        if name not in checked.wrong and checked.faster(name, best):
            best = name
    return best

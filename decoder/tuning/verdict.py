"""Conclusions of the check: whether the search gained anything, and the fastest setting.

Pure; the screen phrases them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.analysis import interval
from decoder.analysis.interval import Interval

FOUND, SHIPPED, AUTO, CHAIN, SHIPPED_CHAIN, PLAIN = "found", "shipped", "auto", "linear", "shipped_chain", "ar"
"""Contenders of the check: `FOUND` if the search has a better tree, `SHIPPED_CHAIN` if `CHAIN` differs from it."""
NOT_SLOWER = 0.97
"""Smallest lower end of a gain's interval at which a setting that is not faster beyond noise is still kept."""


@dataclass(frozen=True)
class Checked:
    """Speeds on texts that the search has not seen."""

    texts: int
    speeds: Mapping[str, Interval | None]
    """Tokens per second by contender; None where no text equals plain decoding's."""
    ratios: Mapping[tuple[str, str], Interval | None]
    """(one, other) -> speed of one over the other's."""
    wrong: frozenset[str]
    """Contenders with a text that differs from plain decoding's, and not by a near tie."""

    def faster(self, one: str, other: str) -> bool:
        """Whether one is faster than the other beyond noise."""
        return interval.verdict(self.ratios.get((one, other))) == "holds"


@dataclass(frozen=True)
class Verdict:
    """Conclusions of a check."""

    gain: Interval | None
    """Speed of the searched setting over the shipped one's; None where either is missing or has no speed."""
    better: bool
    """Whether the searched setting is faster beyond noise."""
    keeps: bool
    """Whether the searched setting is kept: lossless, and not slower than the shipped one."""
    keeps_chain: bool
    """Whether the searched chain is kept beside the shipped one."""
    fastest: str
    """Contender with the best speed."""


def verdict(checked: Checked) -> Verdict:
    """Verdict of a check; the simpler setting wins where the other is not faster beyond noise."""
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
    """Fastest contender: each, from plain decoding on, replaces the best so far only if it is faster beyond noise."""
    best = PLAIN
    for name in (AUTO, tree, SHIPPED_CHAIN, CHAIN):
        if name not in checked.wrong and checked.faster(name, best):
            best = name
    return best

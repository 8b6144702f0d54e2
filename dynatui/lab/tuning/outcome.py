"""Progress, check and result of a tuning, and the conclusions: whether the search gained anything, and which setting is
the fastest. Does not import torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.analysis import interval
from decoder.analysis.interval import Interval
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling
from dynatui.lab.tuning import study
from dynatui.lab.tuning.search import State

NAMES = FOUND, SHIPPED, AUTO, CHAIN, SHIPPED_CHAIN, PLAIN = "found", "shipped", "auto", "linear", "shipped_chain", "ar"
"""Names of the check's contenders. `FOUND` takes part only if the search found a better tree than the shipped tree, and
`SHIPPED_CHAIN` only if it found a better chain; `CHAIN` is the best chain.
"""
NOT_SLOWER = 0.97
"""A found setting is kept if its gain is at least 1 and the lower end of the gain's interval is at least this value."""


@dataclass(frozen=True)
class Checked:
    texts: int
    speeds: Mapping[str, Interval | None]
    """Tokens per second by contender; None if none of the contender's texts equals the text of plain decoding."""
    ratios: Mapping[tuple[str, str], Interval | None]
    """(one, other) -> speed of contender `one` divided by that of contender `other`."""
    wrong: frozenset[str]
    """Contenders with a text that differs from the text of plain decoding, and not only because of a near tie."""

    def faster(self, one: str, other: str) -> bool:
        return interval.compared_to_limit(self.ratios.get((one, other))) == "holds"


@dataclass(frozen=True)
class Verdict:
    gain: Interval | None
    """Speed of the found setting divided by that of the shipped setting; None if one of the two is unknown."""
    better: bool
    """Whether the found setting is kept, and is faster than the shipped setting beyond noise."""
    keeps: bool
    """Whether the found setting is kept: it is lossless, and not slower than the shipped setting (see `NOT_SLOWER`)."""
    keeps_chain: bool
    fastest: str


def verdict(checked: Checked) -> Verdict:
    """Verdict of a check; of two settings, the simpler one wins unless the more complex one is faster beyond noise."""
    keeps = _keeps(checked, FOUND, SHIPPED)
    fastest = PLAIN
    for name in (AUTO, FOUND if keeps else SHIPPED, SHIPPED_CHAIN, CHAIN):
        if name not in checked.wrong and checked.faster(name, fastest):
            fastest = name
    return Verdict(
        checked.ratios.get((FOUND, SHIPPED)),
        keeps and checked.faster(FOUND, SHIPPED),
        keeps,
        _keeps(checked, CHAIN, SHIPPED_CHAIN),
        fastest,
    )


def _keeps(checked: Checked, searched: str, shipped: str) -> bool:
    gain = checked.ratios.get((searched, shipped))
    if gain is None or gain.low is None or searched in checked.wrong:
        return False
    return gain.value >= 1 and gain.low >= NOT_SLOWER


@dataclass(frozen=True)
class Conditions:
    """Pair, device, sampling and prompts of a tuning; the name of a study in a database depends on all of them."""

    target: str
    draft: str
    device: str
    dtype: str
    sampling: Sampling
    seed: int
    max_new_tokens: int
    searched: int
    prompts: int
    """Number of different prompts from which the texts for search and check are made."""


@dataclass(frozen=True)
class TuneProgress:
    conditions: Conditions
    state: State
    checking: bool
    """Whether the search is over and the check runs."""
    left_s: float
    """Remaining seconds of the search, or of the check if `checking`."""
    check_s: float
    """Expected seconds of the whole check."""
    checked: int = 0


@dataclass(frozen=True)
class Tuned:
    conditions: Conditions
    found: DynaTree | None
    """Best tree setting that the search found; None if it found no better setting than the shipped one."""
    chain: Linear
    state: State
    checked: Checked
    verdict: Verdict
    finished_at: str

    @property
    def run(self) -> RunConfig:
        """Run configuration with the found tree setting, if any, and with the found chain if the verdict keeps it."""
        chain = self.chain if self.verdict.keeps_chain else Linear()
        temperature = self.conditions.sampling.temperature
        tree = self.found or study.trees(temperature).shipped
        return RunConfig(temperature=temperature, dynatree=tree).with_rules("linear", chain)

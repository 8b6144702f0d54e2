"""Result of a tuning: the check of the settings, and its conclusions, whether the search gained anything and which
setting is the fastest. Does not import torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.analysis import interval
from decoder.analysis.interval import Interval
from decoder.methods.dynatree import PRESETS, DynaTree, shipped_preset
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling
from dynatui.lab.tuning.search import Trials

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

    @property
    def gain(self) -> Interval | None:
        """Speed of the found setting divided by that of the shipped setting; None if one of the two is unknown."""
        return self.ratios.get((FOUND, SHIPPED))

    @property
    def better(self) -> bool:
        """Whether the found setting is kept, and is faster than the shipped setting beyond noise."""
        return self.keeps() and self.faster(FOUND, SHIPPED)

    @property
    def fastest(self) -> str:
        """The fastest contender; of two, the simpler one wins unless the more complex one is faster beyond noise."""
        fastest = PLAIN
        for name in (AUTO, FOUND if self.keeps() else SHIPPED, SHIPPED_CHAIN, CHAIN):
            if name not in self.wrong and self.faster(name, fastest):
                fastest = name
        return fastest

    def keeps(self, searched: str = FOUND, shipped: str = SHIPPED) -> bool:
        """Whether a setting of the search is lossless, and not slower than the shipped one (see `NOT_SLOWER`)."""
        gain = self.ratios.get((searched, shipped))
        if gain is None or gain.low is None or searched in self.wrong:
            return False
        return gain.value >= 1 and gain.low >= NOT_SLOWER

    def faster(self, one: str, other: str) -> bool:
        return interval.compared_to_limit(self.ratios.get((one, other))) == "holds"


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
class Tuned:
    conditions: Conditions
    found: DynaTree | None
    """Best tree setting that the search found; None if it found no better setting than the shipped one."""
    chain: Linear
    trials: Trials
    importance: Mapping[str, float]
    """{knob of the tree: share of the variance of the speed that it explains}, largest first; empty if unknown."""
    checked: Checked
    finished_at: str

    @property
    def run(self) -> RunConfig:
        """Run configuration with the found tree setting, if any, and with the found chain if the check keeps it."""
        chain = self.chain if self.checked.keeps(CHAIN, SHIPPED_CHAIN) else Linear()
        temperature = self.conditions.sampling.temperature
        tree = self.found or PRESETS[shipped_preset(temperature)]
        return RunConfig(temperature=temperature, dynatree=tree).with_rules("linear", chain)

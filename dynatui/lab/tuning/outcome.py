"""Progress and result of a tuning, as they are shown. This module does not import torch."""

from dataclasses import dataclass

from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling
from dynatui.lab.tuning.search import State
from dynatui.lab.tuning.study import CHAIN, trees
from dynatui.lab.tuning.verdict import Checked, Verdict


@dataclass(frozen=True)
class Conditions:
    """Pair, device, sampling and prompts of a tuning."""

    target: str
    draft: str
    device: str
    dtype: str
    sampling: Sampling
    seed: int
    max_new_tokens: int
    searched: int
    """Number of texts that the search may use."""
    prompts: int
    """Number of different prompts from which the texts for search and check are made."""


@dataclass(frozen=True)
class TuneProgress:
    """Progress of a tuning."""

    conditions: Conditions
    state: State
    checking: bool
    """Whether the search is over and the check runs."""
    left_s: float
    """Seconds left for the search, or for the check if `checking`."""
    check_s: float
    """Expected seconds of the check."""
    checked: int = 0
    """Number of finished texts of the check."""


@dataclass(frozen=True)
class Tuned:
    """Result of a tuning."""

    conditions: Conditions
    found: DynaTree | None
    """Best tree setting that the search found; None if it found no better setting than the shipped one."""
    chain: Linear
    """Best chain that the search found."""
    state: State
    checked: Checked
    verdict: Verdict
    finished_at: str
    """End of the tuning in UTC, as ISO 8601."""

    @property
    def run(self) -> RunConfig:
        """Run configuration with the found tree setting, if any, and with the found chain if the verdict keeps it."""
        chain = self.chain if self.verdict.keeps_chain else CHAIN.shipped
        temperature = self.conditions.sampling.temperature
        tree = self.found or trees(temperature).shipped
        return RunConfig(temperature=temperature, dynatree=tree).with_rules(CHAIN.method, chain)

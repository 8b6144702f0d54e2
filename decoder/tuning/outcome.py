"""How far a tuning has come, and what came of it: what is told of it, to be shown. Imports no torch."""

from dataclasses import dataclass

from decoder.config import RunConfig
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling
from decoder.tuning.search import State
from decoder.tuning.space import CHAIN, TREE
from decoder.tuning.verdict import Checked, Verdict


@dataclass(frozen=True)
class Where:
    """What was measured on."""

    target: str
    draft: str
    device: str
    dtype: str
    sampling: Sampling
    seed: int
    max_new_tokens: int
    searched: int
    """Texts of the search."""
    prompts: int
    """Different prompts that these texts and those of the check begin."""


@dataclass(frozen=True)
class Progress:
    """How far it has come."""

    where: Where
    state: State
    checking: bool
    """Whether the search is over."""
    left_s: float
    """Until the end of the search, or of the check."""
    check_s: float
    """What the check will take."""
    checked: int = 0
    """Texts of the check that are done."""


@dataclass(frozen=True)
class Tuned:
    """What came of it."""

    where: Where
    found: DynaTree | None
    """What the search found; None: nothing better than what is shipped."""
    chain: Linear
    """The best of linear in the search."""
    state: State
    checked: Checked
    verdict: Verdict
    finished_at: str
    """UTC, ISO 8601."""

    @property
    def run(self) -> RunConfig:
        """A run with what was found, as far as it was kept."""
        chain = self.chain if self.verdict.keeps_chain else CHAIN.shipped
        return RunConfig(dynatree=self.found or TREE.shipped).with_rules(CHAIN.method, chain)

"""Verifier and drafting of a run, as parameters of the method that samples trees."""

from abc import ABC
from dataclasses import dataclass, replace
from typing import Self

from decoder.tree_rules import Rules
from decoder.verify.names import COUPLED, Drafting

USUAL_VERIFIER = "traversal"


@dataclass(frozen=True)
class VerifierRules(Rules, ABC):
    """The verifier and kind of drafting, which apply to all methods of a run."""

    verifier: str = COUPLED
    drafting: str = Drafting.TREE

    @property
    def draws(self) -> bool:
        """Whether trees are sampled from the draft; otherwise they are deterministic."""
        return self.drafting != Drafting.TREE

    def drawn(self) -> Self:
        """These parameters if they sample trees; else with drafting `delayed`, and with `USUAL_VERIFIER` in place of
        `coupled`.
        """
        if self.draws:
            return self
        verifier = USUAL_VERIFIER if self.verifier == COUPLED else self.verifier
        return replace(self, verifier=verifier, drafting=Drafting.DELAYED)

"""Verifier and drafting of a run, as parameters of the method that draws trees."""

from abc import ABC
from dataclasses import dataclass, replace
from typing import Self

from decoder.tree_rules import Rules
from decoder.verify.names import COUPLED, Drafting

USUAL_VERIFIER = "traversal"


@dataclass(frozen=True)
class VerifierRules(Rules, ABC):
    """Parameters of drawn trees, with the verifier and the drafting that hold for all methods of a run."""

    verifier: str = COUPLED
    drafting: str = Drafting.TREE

    @property
    def draws(self) -> bool:
        """Whether trees are drawn."""
        return self.drafting != Drafting.TREE

    def drawn(self) -> Self:
        """The same, with the usual verifier and drafting where no tree is drawn."""
        if self.draws:
            return self
        verifier = USUAL_VERIFIER if self.verifier == COUPLED else self.verifier
        return replace(self, verifier=verifier, drafting=Drafting.DELAYED)

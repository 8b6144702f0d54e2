"""Coupled verification: a drafted token stays when the target, under the noise of its position, chooses it too.

At temperature 0 there is no noise, and it is greedy verification. Otherwise the text is distributed as the target's
over seeds, whatever was drafted, since no choice depends on a draft. Siblings differ, so the accepted path is unique.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from decoder.sampling.perturbation import Perturbation
from decoder.tree import TokenTree
from decoder.verify.greedy import Greedy, accept


@dataclass(frozen=True)
class Coupled:
    """A `Verifier` of one text."""

    perturbation: Perturbation

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """See `Verifier`."""
        if self.perturbation.greedy_from(first):
            return Greedy().verify(tree, logits, first)
        return accept(tree, self.perturbation.choices(logits, [first + depth for depth in tree.depths]))

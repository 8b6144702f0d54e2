"""A proposer that samples its trees from a draft model, for independent sampling."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from jaxtyping import Float
from torch import Tensor

from decoder.draft.delayed import draw_tree
from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.proposer import Proposal, Proposer
from decoder.sampling.probabilities import probabilities
from decoder.sampling.settings import Schedule
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule
from decoder.verify.lossless.random_generator import RandomGenerator


class ShapeChoice(NamedTuple):
    shape: DelayedTree
    logits: Float[Tensor, "1 V"] | None = None
    """The draft's, after the text; None if they were not needed to choose the shape."""


ChooseShape: TypeAlias = Callable[[DraftPasses, Sequence[int]], ShapeChoice]
"""(the draft's passes, text) -> shape, which must not depend on any token sampled for the tree."""


class DrawnDrafter(Proposer):
    """Chooses the shape of a tree at the start of each round, then samples the tree."""

    def __init__(
        self, passes: DraftPasses, choose: ChooseShape, schedule: Schedule, generator: RandomGenerator
    ) -> None:
        """`generator` must be independent of the verifier's."""
        self.passes = passes
        self._choose = choose
        self._schedule = schedule
        self._generator = generator

    def read(self, tokens: Sequence[int]) -> None:
        self.passes.read(tokens)

    def reserve(self, rows: int) -> None:
        self.passes.reserve(rows)

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        del rule  # the chosen shape replaces it
        before = self.passes.count
        self.passes.begin_tree()
        choice = self._choose(self.passes, text)
        shape = choice.shape.up_to(room)

        def rows(tree: TokenTree, nodes: Sequence[int]) -> Float[Tensor, "N V"]:
            if nodes[0] == 0:
                logits = self.passes.after_text(text) if choice.logits is None else choice.logits
                return self._probabilities(logits, [len(text)])
            return self._probabilities(*self.passes.after_level(tree, nodes))

        tree = draw_tree(shape, text[-1], rows, self._generator)
        return Proposal(tree, self.passes.count - before, shape)

    def commit(self, path: Sequence[int]) -> None:
        self.passes.commit(path)

    def _probabilities(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Float[Tensor, "N V"]:
        return probabilities(logits, [self._schedule.at(position) for position in positions])

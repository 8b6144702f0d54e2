"""A proposer that samples delayed trees from a draft model, for independent sampling (section 5 of the paper cited in
`decoder.verify.lossless`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.proposer import Proposal, Proposer
from decoder.sampling.settings import Schedule
from decoder.sampling.truncation import probabilities
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule
from decoder.verify.lossless.batched import draw
from decoder.verify.lossless.random_generator import RandomGenerator

DraftRows: TypeAlias = Callable[[TokenTree, Sequence[int]], Float[Tensor, "N V"]]
"""(tree, nodes of one depth) -> the draft's distributions after the nodes, with temperature and truncation applied."""


def draw_tree(shape: DelayedTree, root: int, rows: DraftRows, generator: RandomGenerator) -> TokenTree:
    """Samples a tree, with one call of `rows` per level; the tree stores the returned distributions. `shape` must not
    depend on any token sampled for this tree, and `generator` must be independent of the verifier's generator.
    """
    tree = TokenTree([root], draws={})
    level = [0]
    """The latest node of each rollout; a node that several rollouts share occurs several times."""
    for depth in range(shape.depth):
        if not level:
            break
        if depth == shape.l1:
            level *= shape.k
        level = _draw_level(tree, level, rows, generator)
    return tree


def _draw_level(tree: TokenTree, level: Sequence[int], rows: DraftRows, generator: RandomGenerator) -> list[int]:
    """Samples the next token of every rollout; returns the new node of each rollout."""
    nodes = list(dict.fromkeys(level))
    node_rows = rows(tree, nodes)
    known = node_rows.isfinite().all(-1)
    if not known.all():
        # No token is sampled after a node whose row is not finite. Whether it is finite depends only on the path to the
        # node, so the tree is still valid for lossless verifiers; its paths merely differ in length.
        tree.lost, node_rows = True, node_rows[known]
        nodes = [node for node, is_known in zip(nodes, known.tolist(), strict=True) if is_known]
        level = [node for node in level if node in nodes]
    if not level:
        return []
    counts = [level.count(node) for node in nodes]
    repeats = torch.tensor(counts).to(node_rows.device)
    own_rows = node_rows.repeat_interleave(repeats, 0, output_size=len(level))
    draws = draw(own_rows, generator)
    logprobs = own_rows.gather(1, draws[:, None])[:, 0].log().tolist()
    children, tokens = [], draws.tolist()
    for node, row, count in zip(nodes, node_rows, counts, strict=True):
        children += tree.draw(node, tokens[:count], logprobs[:count], row)
        del tokens[:count], logprobs[:count]
    return children


class ShapeChoice(NamedTuple):
    shape: DelayedTree
    logits: Float[Tensor, "1 V"] | None = None
    """The draft's logits after the text; None if the choice of the shape did not need them."""


ChooseShape: TypeAlias = Callable[[DraftPasses, Sequence[int]], ShapeChoice]
"""(the draft's passes, text) -> chosen shape, which must not depend on any token sampled for the tree."""


class DrawnDrafter(Proposer):
    """Chooses the shape of a tree at the start of each round, then samples the tree."""

    def __init__(
        self, passes: DraftPasses, choose: ChooseShape, schedule: Schedule, generator: RandomGenerator
    ) -> None:
        """`generator` must be independent of the verifier's generator."""
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

"""Sampling of delayed trees (section 5 of the paper cited in `decoder.verify.lossless`). Rollouts with a common prefix
share nodes; the tree counts how often each was sampled, which lossless verifiers need.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.delayed_shape import DelayedTree
from decoder.tree import TokenTree
from decoder.verify.lossless.batched.device_rows import draw
from decoder.verify.lossless.random_generator import RandomGenerator

DraftRows: TypeAlias = Callable[[TokenTree, Sequence[int]], Float[Tensor, "N V"]]
"""(tree, nodes of one depth) -> the draft's distributions after the nodes, with temperature and truncation applied."""


def draw_tree(shape: DelayedTree, root: int, rows: DraftRows, generator: RandomGenerator) -> TokenTree:
    """One call of `rows` per level, whose distributions the tree stores. The shape must not depend on any token sampled
    for this tree, and `generator` must be independent of the verifier's.
    """
    tree = TokenTree([root], draws={})
    level = [0]
    """Returns the next node of each rollout."""
    for depth in range(shape.depth):
        if not level:
            break
        if depth == shape.l1:
            level *= shape.k
        level = _draw_level(tree, level, rows, generator)
    return tree


def _draw_level(tree: TokenTree, level: Sequence[int], rows: DraftRows, generator: RandomGenerator) -> list[int]:
    """Samples the next token of every rollout; returns the node of each rollout."""
    nodes = list(dict.fromkeys(level))
    node_rows = rows(tree, nodes)
    known = node_rows.isfinite().all(-1)
    if not known.all():
        # No token follows a node whose row is NaN. This depends on the path to the node alone, so the tree stays one
        # that lossless verifiers take: one whose paths differ in length.
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

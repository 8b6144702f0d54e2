"""Drawing delayed trees from the draft (the paper, section 5).

Knows no model: rows come from a function of nodes. Rollouts that agree share their nodes, and the tree keeps how
often each was drawn, which lossless verifiers need. "The paper" is that of `decoder.verify.lossless`.
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
"""The draft's sampling distributions after nodes of one depth, after temperature and top-p."""


def draw_tree(shape: DelayedTree, root: int, rows: DraftRows, generator: RandomGenerator) -> TokenTree:
    """Draws a tree below a root token, level by level, with one call of `rows` a level.

    Args:
        shape: The numbers of draws; they must not depend on any draw of this tree.
        root: The last token of the text.
        rows: Asked for the nodes of a level of the tree so far; each row is drawn from, and kept, as it is given.
        generator: Independent of those of the verifier.

    Returns:
        The tree, with its draws.
    """
    tree = TokenTree([root], draws={})
    level = [0]
    """Newest node of each rollout."""
    for depth in range(shape.depth):
        if depth == shape.l1:
            level *= shape.k
        level = _draw_level(tree, level, rows, generator)
    return tree


def _draw_level(tree: TokenTree, level: Sequence[int], rows: DraftRows, generator: RandomGenerator) -> list[int]:
    """One more draw of every rollout."""
    nodes = list(dict.fromkeys(level))
    node_rows = rows(tree, nodes)
    counts = [level.count(node) for node in nodes]
    repeats = torch.tensor(counts).to(node_rows.device)
    own_rows = node_rows.repeat_interleave(repeats, 0, output_size=len(level))
    drawn = draw(own_rows, generator)
    logprobs = own_rows.gather(1, drawn[:, None])[:, 0].log().tolist()
    found, tokens = [], drawn.tolist()
    for node, row, count in zip(nodes, node_rows, counts, strict=True):
        found += tree.draw(node, tokens[:count], logprobs[:count], row)
        del tokens[:count], logprobs[:count]
    return found

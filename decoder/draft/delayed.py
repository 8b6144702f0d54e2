"""Delayed trees: one path drawn from the draft, then independent rollouts from its end (the paper, section 5).

Knows no model: rows come from a function of prefixes. Rollouts that agree share their nodes, and the tree keeps how
often each was drawn, which lossless verifiers need. "The paper" is that of `decoder.verify.lossless`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.errors import require
from decoder.knobs import require_feasible
from decoder.tree import TokenTree
from decoder.verify.lossless.batched.device_rows import draw
from decoder.verify.lossless.coins import Coins

Prefix: TypeAlias = tuple[int, ...]
"""The tokens from below the root to a node."""
DraftRows: TypeAlias = Callable[[Sequence[Prefix]], Float[Tensor, "n V"]]
"""The draft's probabilities after nodes of one depth, after temperature and top-p: what tokens are drawn from."""


@dataclass(frozen=True)
class DelayedTree:
    """The shape of a tree: a path of `l1` draws, then `k` rollouts of `l2` draws each from its end."""

    k: int
    l1: int
    l2: int

    def __post_init__(self) -> None:
        require(self.k >= 1, f"K is {self.k}; give 1 or more")
        for name, length in (("L1", self.l1), ("L2", self.l2)):
            require(length >= 0, f"{name} is {length}; give 0 or more")
        require_feasible({"K": self.k, "L1": self.l1, "L2": self.l2})

    @property
    def depth(self) -> int:
        """Most tokens that a round accepts."""
        return self.l1 + self.l2

    @property
    def most_nodes(self) -> int:
        """Drafted nodes if no rollouts agree."""
        return self.l1 + self.k * self.l2

    def canonical(self) -> "DelayedTree":
        """The one shape for all that draw the same trees: without branches K is void, and one path has one length."""
        return DelayedTree(1, 0, self.depth) if self.k == 1 or self.l2 == 0 else self


def rollouts(k: int, length: int) -> DelayedTree:
    """Independent rollouts from the root."""
    return DelayedTree(k, 0, length)


def distinct_shapes(most_k: int, most_l1: int, most_l2: int) -> list[DelayedTree]:
    """All canonical shapes up to these numbers; 233 of 324 for K up to 4 and lengths up to 8 (appendix E)."""
    shapes = product(range(1, most_k + 1), range(most_l1 + 1), range(most_l2 + 1))
    return list(dict.fromkeys(DelayedTree(*shape).canonical() for shape in shapes))


def draw_tree(shape: DelayedTree, root: int, rows: DraftRows, coins: Coins) -> TokenTree:
    """Draws a tree below a root token, level by level, with one call of `rows` a level.

    Args:
        shape: The numbers of draws; they must not depend on any draw of this tree.
        root: The last token of the text.
        rows: Asked for the distinct prefixes of a level; each row is drawn from, and kept, as it is given.
        coins: Independent of those of the verifier.

    Returns:
        The tree, with its draws.
    """
    tree = TokenTree([root], draws={})
    prefixes: dict[int, Prefix] = {0: ()}
    level = [0]
    """Of each rollout the node that it has come to."""
    for depth in range(shape.depth):
        if depth == shape.l1:
            level *= shape.k
        level = _draw_level(tree, level, prefixes, rows, coins)
    return tree


def _draw_level(
    tree: TokenTree, level: Sequence[int], prefixes: dict[int, Prefix], rows: DraftRows, coins: Coins
) -> list[int]:
    """One more draw of every rollout."""
    nodes = list(dict.fromkeys(level))
    node_rows = rows([prefixes[node] for node in nodes])
    counts = [level.count(node) for node in nodes]
    repeats = torch.tensor(counts).to(node_rows.device)
    own_rows = node_rows.repeat_interleave(repeats, 0, output_size=len(level))
    drawn = draw(own_rows, coins)
    logprobs = own_rows.gather(1, drawn[:, None])[:, 0].log().tolist()
    found, tokens = [], drawn.tolist()
    for node, row, count in zip(nodes, node_rows, counts, strict=True):
        children = tree.draw(node, tokens[:count], logprobs[:count], row)
        prefixes.update({child: (*prefixes[node], tree.tokens[child]) for child in children})
        found += children
        del tokens[:count], logprobs[:count]
    return found

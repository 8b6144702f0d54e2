"""A sampled tree in the form that lossless verifiers use: for each node its token, and the tokens sampled after the
node, in order, with duplicates.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.tree import TokenTree, depths


@dataclass(frozen=True)
class DrawnTree:
    """One entry for each node; node 0 is the root, and a parent comes before its children."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    """-1 for the root."""
    children: tuple[tuple[int, ...], ...]
    """Children in the order of sampling; a child that was sampled several times is listed as many times."""

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> list[int]:
        return depths(self.parents)

    def drawn(self, node: int) -> list[int]:
        """Tokens sampled after a node, in the order of sampling, with duplicates."""
        return [self.tokens[child] for child in self.children[node]]

    def child(self, node: int, token: int) -> int | None:
        return next((child for child in self.children[node] if self.tokens[child] == token), None)

    def slots(self, node: int) -> Iterator[tuple[int, int, bool]]:
        """For each token sampled after a node: its index, its child, and whether the child was sampled for the first
        time.
        """
        for index, child in enumerate(self.children[node]):
            yield index, child, child not in self.children[node][:index]

    def path(self, node: int) -> list[int]:
        """Nodes on the path to a node, without the root."""
        path = []
        while node:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def first_path(self) -> "DrawnTree":
        """The tree with only the first sampled token after each node, which is one path; nodes keep their numbers."""
        return replace(self, children=tuple(drawn[:1] for drawn in self.children))

    def chain(self) -> list[int]:
        """All nodes in order, the root first. Raises ValueError if more than one token was sampled after a node."""
        if any(len(drawn) > 1 for drawn in self.children):
            raise ValueError("the tree is not a chain")
        return list(range(len(self)))


def drawn_tree(tree: TokenTree) -> DrawnTree:
    """If a node has no recorded samples, each of its children counts as sampled once."""
    children: list[list[int]] = [[] for _ in tree.tokens]
    for node, parent in enumerate(tree.parents[1:], 1):
        children[parent].append(node)
    for node, draws in (tree.draws or {}).items():
        children[node] = draws.children
    return DrawnTree(tuple(tree.tokens), tuple(tree.parents), tuple(map(tuple, children)))


def draft_rows(tree: TokenTree, like: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """For each node, the draft's row from which tokens were sampled; zeros for a node without samples. Shape, device
    and dtype are those of `like`.
    """
    rows = torch.zeros_like(like)
    for node, draws in (tree.draws or {}).items():
        rows[node] = draws.row
    return rows

"""A tree as its verifiers read it: the token of each node, and what was drawn after it, in order, with duplicates."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.tree import TokenTree, depths


@dataclass(frozen=True)
class DrawnTree:
    """Parallel tuples with one entry a node; node 0 is the root, and a parent comes before its children."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    """-1 for the root."""
    children: tuple[tuple[int, ...], ...]
    """Nodes in draw order, each as often as it was drawn."""

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> list[int]:
        """Drafted tokens from the root to each node."""
        return depths(self.parents)

    def drawn(self, node: int) -> list[int]:
        """The tokens drawn after a node, in draw order with multiplicity."""
        return [self.tokens[child] for child in self.children[node]]

    def child(self, node: int, token: int) -> int | None:
        """The node of a token after a node; None where it was not drafted."""
        return next((child for child in self.children[node] if self.tokens[child] == token), None)

    def slots(self, node: int) -> Iterator[tuple[int, int, bool]]:
        """Of each draw after a node its place, its node, and whether it is the first draw of that node."""
        for place, child in enumerate(self.children[node]):
            yield place, child, child not in self.children[node][:place]

    def path(self, node: int) -> list[int]:
        """The nodes from below the root to a node."""
        found = []
        while node:
            found.append(node)
            node = self.parents[node]
        return found[::-1]

    def first_path(self) -> "DrawnTree":
        """The same nodes, of which only the first draw after each is known: one path."""
        return replace(self, children=tuple(drawn[:1] for drawn in self.children))

    def chain(self) -> list[int]:
        """All nodes in path order, the root first.

        Raises:
            ValueError: A node has more than one draw.
        """
        if any(len(drawn) > 1 for drawn in self.children):
            raise ValueError("the tree is no chain")
        return list(range(len(self)))


def drawn_tree(tree: TokenTree) -> DrawnTree:
    """A drafted tree for its verifier; where nothing was drawn, children count once each, in their order."""
    children: list[list[int]] = [[] for _ in tree.tokens]
    for node, parent in enumerate(tree.parents[1:], 1):
        children[parent].append(node)
    for node, draws in (tree.draws or {}).items():
        children[node] = draws.children
    return DrawnTree(tuple(tree.tokens), tuple(tree.parents), tuple(map(tuple, children)))


def draft_rows(tree: TokenTree, like: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """The rows that the draws were made from, as `like` in shape, device and dtype; zeros where nothing was drawn."""
    rows = torch.zeros_like(like)
    for node, draws in (tree.draws or {}).items():
        rows[node] = draws.row
    return rows

"""The draft tree as parallel arrays, and the queries that many modules need.

This module knows no text and no devices. Node 0 is the root. Nodes are numbered level by level, and within a level in
the order of their parents. Siblings are numbered by descending draft probability or, in a sampled tree, in the order of
sampling. A parent's number is always lower than its children's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


Origin: TypeAlias = Literal["root", "draft", "lookup"]
"""Origin of a node: root (the text's last token), the draft model, or suffix lookup."""


@dataclass
class Draws:
    """Tokens that were sampled after one node of a tree."""

    row: "Tensor"
    """Distribution from which the tokens were sampled, shape (V,), on the draft's device."""
    children: list[int] = field(default_factory=list)
    """Child node of each sampled token, in the order of sampling. If a token was sampled twice, its only node is listed
    twice.
    """


@dataclass
class TokenTree:
    """A draft tree as parallel arrays with one entry for each node."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    """Index of each node's parent; -1 for the root."""
    logprobs: list[float] = field(default_factory=lambda: [0.0])
    """The draft's log-probability of each node's token, given the path from the root to the node's parent."""
    depths: list[int] = field(default_factory=lambda: [0])
    path_logprobs: list[float] = field(default_factory=lambda: [0.0])
    """Sum of `logprobs` from the root to the node."""
    draft_logprobs: list[float] | None = None
    """The draft's own log-probabilities, if `logprobs` are estimates of the target's choice; otherwise None."""
    draws: dict[int, Draws] | None = None
    """The tokens sampled after each node of a sampled tree; keys are the nodes. None for a deterministic tree."""
    origins: list[Origin] | None = None
    """Origin of each node; None if all nodes except the root have the same origin."""
    lost: bool = False
    """Whether the draft's logits after a node were NaN or infinite, so that no child of this node could be drafted."""

    @classmethod
    def of(cls, tokens: list[int], parents: list[int], logprobs: list[float]) -> "TokenTree":
        """A tree of these nodes, the root included; see `TokenTree` for the fields."""
        path_logprobs = logprobs[:1]
        for parent, logprob in zip(parents[1:], logprobs[1:], strict=True):
            path_logprobs.append(path_logprobs[parent] + logprob)
        return cls(tokens, parents, logprobs, depths(parents), path_logprobs)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, logprob: float) -> int:
        """Appends a child of a node; returns the child's index."""
        return self.grow(parent, [token], [logprob])[0]

    def grow(
        self, parent: int, tokens: Sequence[int], logprobs: Sequence[float], draft_logprobs: Sequence[float] = ()
    ) -> range:
        """Appends children of a node; returns their indices. `draft_logprobs` are by default equal to `logprobs`."""
        first, count, above = len(self.tokens), len(tokens), self.path_logprobs[parent]
        self.tokens += tokens
        self.parents += [parent] * count
        self.logprobs += logprobs
        self.depths += [self.depths[parent] + 1] * count
        self.path_logprobs += [above + logprob for logprob in logprobs]
        if draft_logprobs and self.draft_logprobs is None:
            self.draft_logprobs = self.logprobs[:first]
        if self.draft_logprobs is not None:
            self.draft_logprobs += draft_logprobs or logprobs
        return range(first, first + count)

    def draw(self, parent: int, tokens: Sequence[int], logprobs: Sequence[float], row: "Tensor") -> list[int]:
        """Records tokens sampled after a node, and appends a child for each token that is new; a token that was already
        sampled after this node keeps its child.

        Args:
            parent: The node after which the tokens were sampled. A later call for the same parent adds tokens; it must
                give the same row.
            tokens: Sampled tokens, in the order of sampling.
            logprobs: Log-probabilities of the tokens in `row`.
            row: See `Draws`.

        Returns:
            The child node of each sampled token.
        """
        self.draws = self.draws or {}
        drawn = self.draws.setdefault(parent, Draws(row))
        node_of = {self.tokens[node]: node for node in drawn.children}
        for token, logprob in zip(tokens, logprobs, strict=True):
            if token not in node_of:
                node_of[token] = self.add(parent, token, logprob)
            drawn.children.append(node_of[token])
        return [node_of[token] for token in tokens]

    def path_probability(self, node: int) -> float:
        """Product of the draft probabilities from the root to a node."""
        return math.exp(self.path_logprobs[node])

    def ancestors(self, node: int) -> list[int]:
        """The node and its ancestors, deepest first."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes

    def visible(self) -> NDArray[np.bool_]:
        """Attention mask of the tree, shape (N, N): row i marks the nodes to which node i attends, which are its
        ancestors and the node itself.
        """
        # As in `visibility`, a bytearray is used, since numpy takes longer to set single entries.
        count = len(self)
        seen = bytearray(count * count)
        seen[0] = True
        for node in range(1, count):
            row, above = node * count, self.parents[node] * count
            seen[row : row + count] = seen[above : above + count]
            seen[row + node] = True
        return np.frombuffer(seen, dtype=np.bool_).reshape(count, count)

    def most_probable(self, nodes: int) -> list[int]:
        """The root and the drafted nodes with the highest path probabilities, as ascending node numbers.

        A path is never more probable than its prefix, and the sort is stable, so the parent of a kept node is kept too.

        Args:
            nodes: Number of drafted nodes to choose.
        """
        drafted = sorted(range(1, len(self)), key=lambda node: -self.path_logprobs[node])
        return sorted([0, *drafted[:nodes]])

    def subtree(self, kept: Sequence[int]) -> "TokenTree":
        """A tree of the nodes `kept` only, renumbered in the order of `kept`. The parent of each kept node must be kept
        too.

        Raises:
            ValueError: The tree is sampled and `kept` lacks a sampled node, without which the verifier would be biased.
        """
        renumbered = {old: new for new, old in enumerate(kept)}
        return TokenTree(
            draws=self._renumbered_draws(renumbered) if self.draws else None,
            tokens=[self.tokens[node] for node in kept],
            parents=[renumbered.get(self.parents[node], -1) for node in kept],
            logprobs=[self.logprobs[node] for node in kept],
            depths=[self.depths[node] for node in kept],
            path_logprobs=[self.path_logprobs[node] for node in kept],
            draft_logprobs=[self.draft_logprobs[node] for node in kept] if self.draft_logprobs else None,
            origins=[self.origins[node] for node in kept] if self.origins else None,
            lost=self.lost,
        )

    def _renumbered_draws(self, renumbered: dict[int, int]) -> dict[int, Draws]:
        drawn = self.draws or {}
        if not renumbered.keys() >= {child for draws in drawn.values() for child in draws.children}:
            raise ValueError("a token that was drawn must stay in the tree")
        return {
            renumbered[node]: Draws(draws.row, [renumbered[child] for child in draws.children])
            for node, draws in drawn.items()
        }


def visibility(seen: Sequence[Sequence[int]], width: int) -> NDArray[np.bool_]:
    """Attention mask, shape (N, width): row i attends to the columns `seen[i]`."""
    # A bytearray is used, since numpy takes longer to set single entries.
    visible = bytearray(len(seen) * width)
    for row, places in enumerate(seen):
        for place in places:
            visible[row * width + place] = True
    return np.frombuffer(visible, dtype=np.bool_).reshape(len(seen), width)


def depths(parents: Sequence[int]) -> list[int]:
    """Depth of each node of a tree; the root has depth 0."""
    levels = [0] * len(parents)
    for node in range(1, len(parents)):
        levels[node] = levels[parents[node]] + 1
    return levels


def ruled_part(accepted: Sequence[int], depths: Sequence[int], origins: Sequence[Origin]) -> tuple[list[int], int]:
    """Accepted nodes, and number of drafted levels. Nodes that suffix lookup added are not returned, and their levels
    are not counted.

    Args:
        accepted: Accepted nodes of a tree.
        depths: Depths of all nodes.
        origins: Origins of all nodes; empty if all nodes except the root have the same origin.
    """
    if not origins:
        return list(accepted), max(depths, default=0)
    looked_up = {node for node, origin in enumerate(origins) if origin == "lookup"}
    levels = max((depth for node, depth in enumerate(depths) if node not in looked_up), default=0)
    return [node for node in accepted if node not in looked_up], levels


def share_of_depth(accepted: Sequence[int], levels: int) -> float:
    """Depth acceptance of a tree: number of accepted nodes / number of drafted levels; 0 for a tree without drafted
    levels.
    """
    return len(accepted) / levels if levels else 0.0

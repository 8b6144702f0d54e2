"""The draft tree as parallel arrays. Node 0 is the root. Nodes are numbered level by level, within a level by parent,
and among siblings by descending draft probability or, in a sampled tree, by the order of sampling.
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
"""Source of a node: the text (for the root, its last token), the draft model, or suffix lookup."""


@dataclass
class Draws:
    """Tokens that were sampled as children of one node."""

    row: "Tensor"
    """Distribution from which the tokens were sampled, shape (V,), on the draft's device."""
    children: list[int] = field(default_factory=list)
    """Nodes in the order of sampling; the node of a token that was sampled twice is listed twice."""


@dataclass
class TokenTree:
    """Parallel arrays with one entry for each node."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    logprobs: list[float] = field(default_factory=lambda: [0.0])
    """Log-probability of each node's token, given the path to its parent."""
    depths: list[int] = field(default_factory=lambda: [0])
    path_logprobs: list[float] = field(default_factory=lambda: [0.0])
    draft_logprobs: list[float] | None = None
    """The draft's own log-probabilities, if `logprobs` are estimates of the target's choice; else None."""
    draws: dict[int, Draws] | None = None
    """Sampled tokens by parent node; None for a deterministic tree."""
    origins: list[Origin] | None = None
    """None if all nodes except the root have the same origin."""
    lost: bool = False
    """Whether a node has no children because the draft's logits were NaN or infinite."""

    @classmethod
    def of(cls, tokens: list[int], parents: list[int], logprobs: list[float]) -> "TokenTree":
        path_logprobs = logprobs[:1]
        for parent, logprob in zip(parents[1:], logprobs[1:], strict=True):
            path_logprobs.append(path_logprobs[parent] + logprob)
        return cls(tokens, parents, logprobs, depths(parents), path_logprobs)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, logprob: float) -> int:
        return self.grow(parent, [token], [logprob])[0]

    def grow(
        self, parent: int, tokens: Sequence[int], logprobs: Sequence[float], draft_logprobs: Sequence[float] = ()
    ) -> range:
        """Adds children of a node; `draft_logprobs` are by default equal to `logprobs`."""
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
        """Records tokens that were sampled after a node, adds a child for each new token, and returns the child of each
        token. A later call for the same parent must give the same `row` (see `Draws`).
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
        return math.exp(self.path_logprobs[node])

    def ancestors(self, node: int) -> list[int]:
        """Path from a node up to the root, both included."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes

    def visible(self) -> NDArray[np.bool_]:
        """Attention mask, shape (N, N): each node sees its ancestors and itself."""
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
        """The root and the `nodes` most probable drafted nodes, in ascending order. A path is never more probable than
        its prefix, and the sort is stable, so the parent of a returned node is returned too.
        """
        drafted = sorted(range(1, len(self)), key=lambda node: -self.path_logprobs[node])
        return sorted([0, *drafted[:nodes]])

    def subtree(self, kept: Sequence[int]) -> "TokenTree":
        """The tree of the nodes `kept`, renumbered in this order; the parents of these nodes must be among them. Raises
        ValueError if a sampled node is missing, since the verifier would then be biased.
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
    levels = [0] * len(parents)
    for node in range(1, len(parents)):
        levels[node] = levels[parents[node]] + 1
    return levels


def ruled_part(accepted: Sequence[int], depths: Sequence[int], origins: Sequence[Origin]) -> tuple[list[int], int]:
    """Accepted nodes and number of drafted levels, both without nodes of suffix lookup; `origins` is empty if all nodes
    have the same origin.
    """
    if not origins:
        return list(accepted), max(depths, default=0)
    looked_up = {node for node, origin in enumerate(origins) if origin == "lookup"}
    levels = max((depth for node, depth in enumerate(depths) if node not in looked_up), default=0)
    return [node for node in accepted if node not in looked_up], levels


def share_of_depth(accepted: Sequence[int], levels: int) -> float:
    """Depth acceptance: accepted nodes / drafted levels; 0 without levels."""
    return len(accepted) / levels if levels else 0.0

"""Passes of an EAGLE-3 head or MTP layer over one text, and level by level over the draft trees at the end of the text
(EAGLE-3, section 3.1).

`HeadText` computes the rows of the text. The row of a drafted node combines the node's token with the head's own output
at the node's parent. Keys and values of drafted rows are dropped after each round. The rows of accepted nodes are then
computed again, from the target's states at these nodes. This module does not know what the logits are used for.
"""

import sys
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.draft_passes import MORE_ROWS
from decoder.draft.head_text import HeadText
from decoder.forward.taps import LayerStates
from decoder.heads.protocol import GuidedHead
from decoder.tree import TokenTree, visibility


class Eagle3Passes:
    """`Passes` of one text; logits are over the target's token ids."""

    def __init__(self, head: GuidedHead, capacity: int, states: LayerStates) -> None:
        """Begins a text; `states` are the target's layer states, to which each target pass adds rows."""
        self._text = HeadText(head, capacity, states)
        self.cache = self._text.cache
        self.count = 0
        self.deepest = sys.maxsize
        self._head = head
        self._capacity = capacity
        self._carried: dict[int, Float[Tensor, X]] = {}
        """The head's output at each node, which is an input for the node's children. The root's entry is the output at
        the last row of the text.
        """
        self._visible_rows: dict[int, list[int]] = {}
        """Cache rows of each drafted node and its ancestors, counted from the first row after the text."""

    def read(self, tokens: Sequence[int]) -> None:
        """See `Passes`; the target's latest pass must have read the same tokens."""
        self._text.read(tokens)

    def reserve(self, rows: int) -> None:
        self._capacity = max(self._capacity, rows)
        self.cache.reserve(rows)

    def behind(self, text: Sequence[int]) -> int:
        """See `Passes`; 0 if the target has not read any tokens."""
        return self._text.behind(text)

    def after_text(self, text: Sequence[int]) -> Float[Tensor, "1 V"]:
        return self.after_latest(text, 1)[0]

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        outputs = self._text.outputs(text, latest)
        self.count += 1
        self._carried[0] = self._head.carried(outputs[-1:])[0]
        return self._head.logits(outputs), [*range(len(text) - len(outputs) + 1, len(text) + 1)]

    def begin_tree(self) -> None:
        self._carried = {node: row for node, row in self._carried.items() if node == 0}
        self._visible_rows = {}

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
        """See `Passes`; the root must have been read as the last token of the text."""
        drafted = self.cache.used - self.cache.length
        if self.cache.used + len(nodes) > self._capacity:
            self.reserve(self.cache.used + len(nodes) + MORE_ROWS)
        for row, node in enumerate(nodes, drafted):
            self._visible_rows[node] = [*self._visible_rows.get(tree.parents[node], ()), row]
        positions = [self.cache.length - 1 + tree.depths[node] for node in nodes]
        outputs = self._head.forward(
            self.cache,
            [tree.tokens[node] for node in nodes],
            torch.stack([self._carried[tree.parents[node]] for node in nodes]),
            positions,
            visibility([self._visible_rows[node] for node in nodes], drafted + len(nodes)),
        )
        self.count += 1
        self._carried.update(zip(nodes, self._head.carried(outputs), strict=True))
        # A row combines the states at its position p with the token at p + 1, so its logits are for the token at p + 2.
        return self._head.logits(outputs), [position + 2 for position in positions]

    def renumber(self, kept_nodes: Sequence[int]) -> None:
        """See `Passes`; does nothing, since no cache row of a tree is kept after a round."""

    def commit(self, path: Sequence[int]) -> None:
        """See `Passes`; the target's latest pass must have verified the tree of these nodes."""
        self.cache.keep([])
        self._text.commit(path)

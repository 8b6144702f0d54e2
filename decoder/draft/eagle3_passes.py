"""Passes of an EAGLE-3 head or MTP layer, level by level (EAGLE-3, section 3.1). A drafted node's row combines its
token with the head's own output at its parent, and is dropped after the round; the rows of accepted nodes are computed
again, from the target's states.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.draft_passes import MORE_ROWS
from decoder.draft.head_text import HeadText
from decoder.forward.taps import LayerStates
from decoder.heads.protocol import GuidedHead
from decoder.tree import TokenTree, visibility


class Eagle3Passes(HeadText):
    def __init__(self, head: GuidedHead, capacity: int, states: LayerStates) -> None:
        super().__init__(head, capacity, states)
        self._capacity = capacity
        self._carried: dict[int, Float[Tensor, X]] = {}
        """The head's output at each node, an input for its children; for the root, that at the last row of the text."""
        self._visible_rows: dict[int, list[int]] = {}
        """Of each drafted node and its ancestors, counted from the first row after the text."""

    def reserve(self, rows: int) -> None:
        self._capacity = max(self._capacity, rows)
        self.cache.reserve(rows)

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        outputs = self.outputs(text, latest)
        self.count += 1
        self._carried[0] = self._head.carried(outputs[-1:])[0]
        return self._head.logits(outputs), [*range(len(text) - len(outputs) + 1, len(text) + 1)]

    def begin_tree(self) -> None:
        self._carried = {node: row for node, row in self._carried.items() if node == 0}
        self._visible_rows = {}

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
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

"""Passes of a P-EAGLE head: one pass for all levels of a tree.

A pass ends with mask rows, which follow the last row of the text. Each mask row combines a mask token with a mask state
and predicts the token of one more level; all nodes of a level have the same row of logits. Source: P-EAGLE (arXiv
2602.01469).
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from decoder.draft.head_text import HeadText
from decoder.forward.taps import LayerStates
from decoder.heads.eagle3 import Head
from decoder.tree import TokenTree


class ParallelPasses(HeadText):
    def __init__(self, head: Head, capacity: int, states: LayerStates) -> None:
        self.deepest = head.shape.guesses
        super().__init__(head, capacity + self.deepest, states)
        self._parallel = head
        self._levels: Float[Tensor, "K V"] | None = None
        """Logits for a tree at the end of the latest text; row d is for the next token after nodes at depth d."""

    def reserve(self, rows: int) -> None:
        # No rows of trees are cached.
        self.cache.reserve(rows + self.deepest)

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        logits = self._head.logits(self.outputs(text, latest, self._parallel.masks))
        self.count += 1
        rows = len(logits) - self.deepest + 1
        self._levels = logits[rows - 1 :]
        return logits[:rows], [*range(len(text) - rows + 1, len(text) + 1)]

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "1 V"], list[int]]:
        depth, levels = tree.depths[nodes[0]], self._levels
        assert levels is not None, "a text is read before its tree is drafted"  # noqa: S101 - a programmer's mistake
        # The root has the position `cache.length`, so the next token after nodes of this depth has this position.
        return levels[depth : depth + 1], [self.cache.length + 1 + depth]

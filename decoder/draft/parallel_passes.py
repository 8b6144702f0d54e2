"""Passes of a P-EAGLE head: one pass for all levels of a tree.

A pass ends with mask rows, which follow the last row of the text. Each mask row combines a mask token with a mask state
and predicts the token of one more level; all nodes of a level have the same row of logits. Source: P-EAGLE (arXiv
2602.01469). This module does not know what the logits are used for.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from decoder.draft.head_text import HeadText
from decoder.forward.taps import LayerStates
from decoder.heads.eagle3 import Head
from decoder.tree import TokenTree


class ParallelPasses:
    """`Passes` of one text; logits are over the target's token ids."""

    def __init__(self, head: Head, capacity: int, states: LayerStates) -> None:
        """Begins a text; `states` are the target's layer states, to which each target pass adds rows."""
        self.count = 0
        self.deepest = head.shape.guesses
        self._text = HeadText(head, capacity + self.deepest, states)
        self.cache = self._text.cache
        self._head = head
        self._levels: Float[Tensor, "K V"] | None = None
        """Logits for a tree at the end of the latest text; row d is for the next token after nodes at depth d."""

    def read(self, tokens: Sequence[int]) -> None:
        """See `Passes`; the target's latest pass must have read the same tokens."""
        self._text.read(tokens)

    def reserve(self, rows: int) -> None:
        """See `Passes`; no rows of trees are cached."""
        self.cache.reserve(rows + self.deepest)

    def behind(self, text: Sequence[int]) -> int:
        """See `Passes`; 0 if the target has not read any tokens."""
        return self._text.behind(text)

    def after_text(self, text: Sequence[int]) -> Float[Tensor, "1 V"]:
        return self.after_latest(text, 1)[0]

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        logits = self._head.logits(self._text.outputs(text, latest, self._head.masks))
        self.count += 1
        rows = len(logits) - self.deepest + 1
        self._levels = logits[rows - 1 :]
        return logits[:rows], [*range(len(text) - rows + 1, len(text) + 1)]

    def begin_tree(self) -> None:
        """See `Passes`; does nothing, since no state of single nodes is kept."""

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "1 V"], list[int]]:
        """See `Passes`; no forward pass is needed. The root must have been read as the last token of the text."""
        depth, levels = tree.depths[nodes[0]], self._levels
        assert levels is not None, "a text is read before its tree is drafted"  # noqa: S101 - a programmer's mistake
        # The root has the position `cache.length`, so the next token after nodes of this depth has this position.
        return levels[depth : depth + 1], [self.cache.length + 1 + depth]

    def renumber(self, kept_nodes: Sequence[int]) -> None:
        """See `Passes`; does nothing, since no cache row of a tree is kept after a round."""

    def commit(self, path: Sequence[int]) -> None:
        """See `Passes`; the target's latest pass must have verified the tree of these nodes."""
        self._text.commit(path)

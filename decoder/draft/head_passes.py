"""Passes of drafting heads, which read the target's layer states at the tokens of a text. EAGLE-3 heads and MTP layers
draft level by level; P-EAGLE and DFlash heads draft all levels in one pass.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.draft_passes import Passes
from decoder.forward.kv_cache import MORE_ROWS
from decoder.forward.taps import LayerStates
from decoder.heads.dflash import BlockHead, DraftBlock
from decoder.heads.eagle3 import Head
from decoder.heads.parts import GuidedHead
from decoder.tree import TokenTree, visibility

AT_ONCE = 512
"""Largest number of text rows in one pass."""
Drafted = tuple[Sequence[int], Float[Tensor, "N X"]]
"""Token ids and hidden states of additional rows, which follow the text."""


class HeadText(Passes):
    """A head's passes over a text: its KV cache for the text, and the target's states that it has not read yet."""

    def __init__(self, head: GuidedHead, capacity: int, states: LayerStates) -> None:
        """`states` are the target's layer states, to which each target pass adds rows."""
        self.cache = head.new_cache(capacity)
        self.unread: list[Float[Tensor, "N Y"]] = []
        self._head = head
        self._states = states

    def read(self, tokens: Sequence[int]) -> None:
        # The target's latest pass has read the same tokens.
        self.unread.append(self._states.take(range(len(tokens))))
        if len(tokens) > 1:
            # The head reads the states of the last token later, together with the token after it.
            self.outputs(tokens, 1)

    def behind(self, text: Sequence[int]) -> int:
        return len(text) - 1 - self.cache.length

    def commit(self, path: Sequence[int]) -> None:
        # The target's latest pass has verified the tree of these nodes.
        self.cache.keep([])
        self.unread.append(self._states.take([0, *path]))

    def outputs(self, text: Sequence[int], latest: int, behind: Drafted | None = None) -> Float[Tensor, "N X"]:
        """Reads the unread tokens of the text; returns the head's outputs at the last `latest` of these tokens, then at
        the rows `behind`. The same pass computes these rows as a chain after the text, but does not keep them.
        """
        tokens, states = text[self.cache.length + 1 :], torch.cat(self.unread)
        count, outputs = len(tokens), list[Tensor]()
        # The remaining states are copied, since a view would keep all states of a prompt in memory until the next pass.
        self.unread = [states[count:].clone()]
        more, hidden_more = behind or ((), states[:0])
        for start in range(0, count, AT_ONCE):
            chunk = list(tokens[start : start + AT_ONCE])
            hidden = self._head.fused(states[start : min(count, start + AT_ONCE)])
            rows = range(self.cache.length, self.cache.length + len(chunk))
            if more and start + AT_ONCE >= count:
                chunk, hidden = [*chunk, *more], torch.cat([hidden, hidden_more])
            positions = range(rows.start, rows.start + len(chunk))
            outputs.append(self._head.forward(self.cache, chunk, hidden, positions, np.tri(len(chunk), dtype=np.bool_)))
            self.cache.keep(rows)
        return torch.cat(outputs)[-latest - len(more) :]


class Eagle3Passes(HeadText):
    def __init__(self, head: GuidedHead, capacity: int, states: LayerStates) -> None:
        super().__init__(head, capacity, states)
        self._capacity = capacity
        self._carried: dict[int, Float[Tensor, X]] = {}
        """The head's output at each node, an input of its children; for the root, the output at the last text row."""
        self._visible_rows: dict[int, list[int]] = {}
        """For each drafted node, the rows of its ancestors and of itself, counted from the first row after the text."""

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


class ParallelPasses(HeadText):
    def __init__(self, head: Head, capacity: int, states: LayerStates) -> None:
        self.deepest = head.shape.guesses
        super().__init__(head, capacity + self.deepest, states)
        self._parallel = head
        self._levels: Float[Tensor, "K V"] | None = None
        """Logits for a tree at the end of the latest text; row d is for the next token after nodes at depth d."""

    def reserve(self, rows: int) -> None:
        # The cache has rows for the text and the mask rows, but not for nodes of trees.
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


PROBED = 3
"""Largest number of additional blocks in a pass; these begin at earlier tokens and predict tokens of the text."""


class BlockPasses(Passes):
    def __init__(self, head: BlockHead, capacity: int, states: LayerStates) -> None:
        """`states` are the target's layer states, to which each target pass adds rows."""
        self.cache = head.new_cache(capacity)
        self.deepest = head.shape.guesses
        self._head = head
        self._states = states
        self._unread: list[Float[Tensor, "N Y"]] = []
        """Layer states of the target that the head has not read yet."""
        self._block: DraftBlock | None = None
        """The block that begins at the text's last token."""
        self._memory: dict[int, Float[Tensor, R]] = {}
        """Recurrent state of the head's correction after each node; key -1 is for the state before the root."""

    def read(self, tokens: Sequence[int]) -> None:
        # The target's latest pass has read the same tokens.
        self._unread.append(self._states.take(range(len(tokens))))
        self._read(len(tokens))

    def reserve(self, rows: int) -> None:
        # The cache has rows for the text and one block, but not for nodes of trees.
        self.cache.reserve(rows + self._head.shape.block_size)

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        # Logits are computed after the last token and at most `PROBED` earlier ones, since each token needs a block.
        count = min(latest, self.behind(text), 1 + PROBED)
        self._read(len(text) - 1 - self.cache.length)
        *before, self._block = self._head.blocks(self.cache, text[len(text) - count :])
        self.count += 1
        self._memory = {-1: self._block.memory[0]}
        rows = [self._head.logits(block.rows[0], [block.anchor], block.memory)[0] for block in before]
        rows.append(self.after_level(TokenTree([text[-1]]), [0])[0])
        return torch.cat(rows), [*range(len(text) - count + 1, len(text) + 1)]

    def begin_tree(self) -> None:
        self._memory = {node: memory for node, memory in self._memory.items() if node <= 0}

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
        depth, block = tree.depths[nodes[0]], self._block
        assert block is not None, "a text is read before its tree is drafted"  # noqa: S101 - a programmer's mistake
        memory = torch.stack([self._memory[tree.parents[node]] for node in nodes])
        logits, memory = self._head.logits(block.rows[depth], [tree.tokens[node] for node in nodes], memory)
        self._memory.update(zip(nodes, memory, strict=True))
        # The root has the position `cache.length`, so the next tokens after nodes of this depth have these positions.
        return logits, [self.cache.length + 1 + depth] * len(logits)

    def commit(self, path: Sequence[int]) -> None:
        # The target's latest pass has verified the tree of these nodes.
        self._unread.append(self._states.take([0, *path]))

    def _read(self, count: int) -> None:
        """Reads the next `count` tokens of the text, whose states are in `_unread`."""
        if not count:
            return
        states = torch.cat(self._unread)
        # The remaining states are copied, since a view would keep all states of a prompt in memory until the next pass.
        self._unread = [states[count:].clone()]
        for start in range(0, count, AT_ONCE):
            self._head.read(self.cache, states[start : min(count, start + AT_ONCE)])

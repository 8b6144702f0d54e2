"""Passes of a DFlash head: one pass predicts the tokens of all levels. Row i of the KV cache is computed from the
target's layer states at token i. All nodes of a level have the same logits, unless the head corrects them for the token
of each node.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.draft_passes import Passes
from decoder.draft.head_passes import AT_ONCE
from decoder.forward.taps import LayerStates
from decoder.heads.dflash import Block, BlockHead
from decoder.tree import TokenTree

PROBED = 3
"""Most additional blocks in a pass, which begin at earlier tokens and guess tokens that the text already has."""


class BlockPasses(Passes):
    def __init__(self, head: BlockHead, capacity: int, states: LayerStates) -> None:
        """`states` are the target's layer states, to which each target pass adds rows."""
        self.cache = head.new_cache(capacity)
        self.deepest = head.shape.guesses
        self._head = head
        self._states = states
        self._unread: list[Float[Tensor, "N Y"]] = []
        """Layer states of the target that the head has not read yet."""
        self._block: Block | None = None
        """The block that begins at the text's last token."""
        self._memory: dict[int, Float[Tensor, R]] = {}
        """Of the head's correction after each node; -1 stands for the parent of the root."""

    def read(self, tokens: Sequence[int]) -> None:
        # The target's latest pass has read the same tokens.
        self._unread.append(self._states.take(range(len(tokens))))
        self._read(len(tokens))

    def reserve(self, rows: int) -> None:
        # No rows of trees are cached.
        self.cache.reserve(rows + self._head.shape.block_size)

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        # Besides the last token, at most `PROBED` tokens have logits, since each needs a block.
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

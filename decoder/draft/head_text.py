"""One text as read by a head. Row i combines token i + 1 with the target's states after token i, so that the last token
can be read once the target has read those before it. No row of a tree is kept after a round.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.draft_passes import Passes
from decoder.forward.taps import LayerStates
from decoder.heads.protocol import GuidedHead

AT_ONCE = 512
"""Largest number of text rows in one pass."""
Drafted = tuple[Sequence[int], Float[Tensor, "N X"]]
"""Token ids and hidden states of rows that follow the text."""


class HeadText(Passes):
    """A text, the head's KV cache for it, and the target's states that the head has not read yet."""

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
            # The states of the last token are read later, together with the token after it.
            self.outputs(tokens, 1)

    def behind(self, text: Sequence[int]) -> int:
        return len(text) - 1 - self.cache.length

    def commit(self, path: Sequence[int]) -> None:
        # The target's latest pass has verified the tree of these nodes.
        self.cache.keep([])
        self.unread.append(self._states.take([0, *path]))

    def outputs(self, text: Sequence[int], latest: int, behind: Drafted | None = None) -> Float[Tensor, "N X"]:
        """Reads the unread tokens of the text; returns the head's outputs at the last `latest` of them, then those of
        `behind`: rows that are computed in the same pass, as a chain after the text, and not kept.
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

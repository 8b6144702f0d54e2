"""Finds out, when a target is loaded, which passes give a row the same bits, and proves it on a small tree.

No library promises it, so it is tried: on this machine, with these weights and this number of threads. In half
precision a row's logits depend a little on how many rows are computed together; a near tie may then fall the other way.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.errors import ConfigError, PairError
from decoder.forward.batch_invariant.passes import Exact
from decoder.forward.cpu.packed import HALF
from decoder.forward.protocol import Forward

UNPADDED_ROWS, PADDED_ROWS, CUDA_ROWS = 16, 8, 64
"""Most rows of a pass: on a CPU where smaller passes agree with it, on a CPU where they are padded to it, on CUDA."""


def refuse_float64(dtype: torch.dtype) -> None:
    """Raises a ConfigError where the model's dtype is no coarser than that of the sums."""
    if dtype is torch.float64:
        raise ConfigError(
            "--exact adds up in float64 and rounds, so in float64 it can promise nothing; "
            "give --dtype float32, bfloat16 or float16, or leave out --exact"
        )


@torch.inference_mode()
def exactly(forward: Forward, words: int, *, cuda: bool) -> Exact:
    """A forward whose rows have the same bits in every pass.

    Args:
        forward: Its attention must not depend on the order of keys.
        words: Ids below this are tokens.
        cuda: Whether it runs on a GPU, where many rows take hardly longer than one.

    Raises:
        PairError: Bits differ even where rows are computed one by one.
    """
    trial = Trial(forward, words)
    tells = trial.tells()
    widest = CUDA_ROWS if cuda else UNPADDED_ROWS if tells else PADDED_ROWS
    while widest > 1 and trial.place_matters(widest):
        widest //= 2
    found = trial.agreeing(widest) if tells and not cuda else (widest,)
    # Smaller passes may have agreed by chance; padded ones then still do.
    for sizes in dict.fromkeys((found, (widest,))):
        exact = Exact(forward, sizes)
        if Trial(exact, words).tree_agrees():
            return exact
    raise PairError(
        "the target computes other bits for a draft tree than for plain text, even row by row; leave out --exact, "
        "or choose models of another family"
    )


class Trial:
    """Passes of a forward over a few random tokens."""

    def __init__(self, forward: Forward, words: int) -> None:
        random = np.random.default_rng(0)
        self._forward = forward
        self._tokens: list[int] = random.integers(0, words, CUDA_ROWS).tolist()
        self._text = self._tokens[:3]
        self._cache = forward.new_cache(len(self._text) + CUDA_ROWS)
        forward.read(self._cache, self._text)

    def tells(self) -> bool:
        """Whether logits are so fine that every other order of sums shows in them.

        Rounded to half precision, most would look alike, and a few trials would prove nothing.
        """
        logits = self._siblings(self._tokens[:1])
        return not any(torch.equal(logits.to(half).to(logits.dtype), logits) for half in HALF)

    def place_matters(self, rows: int) -> bool:
        """Whether a row's bits depend on its place in a pass, or on its neighbours."""
        tokens = self._tokens[:rows]
        expected = self._siblings(tokens)
        turned = (torch.equal(self._siblings(tokens[by:] + tokens[:by]).roll(by, 0), expected) for by in (1, rows // 2))
        return not all(turned) or not torch.equal(self._siblings(tokens[:1] * rows), expected[:1].expand_as(expected))

    def agreeing(self, widest: int) -> tuple[int, ...]:
        """The numbers of rows up to `widest` that give each row its bits in a pass of `widest`."""
        tokens = self._tokens[:widest]
        expected = self._siblings(tokens)

        def agree(part: slice) -> bool:
            return torch.equal(self._siblings(tokens[part]), expected[part])

        smaller = [rows for rows in range(1, widest) if agree(slice(0, rows)) and agree(slice(widest - rows, widest))]
        return (*smaller, widest)

    def tree_agrees(self) -> bool:
        """Whether the nodes of a small tree have the bits of their paths, decoded token by token."""
        tokens, paths = self._tokens[:7], [[0], [0, 1], [0, 2], [0, 1, 3], [0, 1, 4], [0, 2, 5], [0, 1, 3, 6]]
        visible = np.zeros((7, 7), dtype=np.bool_)
        for node, path in enumerate(paths):
            visible[node, path] = True
        positions = [len(self._text) + len(path) - 1 for path in paths]
        as_tree = self._forward.forward(self._cache, tokens, positions, visible)
        self._cache.keep([])
        return all(
            torch.equal(as_tree[node], self._decoded([tokens[above] for above in path]))
            for node, path in enumerate(paths)
        )

    def _siblings(self, tokens: Sequence[int]) -> Float[Tensor, "N V"]:
        """Logits of rows that see the text and themselves."""
        rows = len(tokens)
        logits = self._forward.forward(self._cache, tokens, [len(self._text)] * rows, np.eye(rows, dtype=np.bool_))
        self._cache.keep([])
        return logits

    def _decoded(self, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """Logits after the last of some tokens that follow the text one by one."""
        cache, logits = self._forward.new_cache(len(self._text) + len(tokens)), torch.empty(0)
        self._forward.read(cache, self._text)
        for at, token in enumerate(tokens, len(self._text)):
            logits = self._forward.forward(cache, [token], [at], np.ones((1, 1), dtype=np.bool_))[0]
            cache.keep([at])
        return logits

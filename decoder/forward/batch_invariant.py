"""Batch-invariant forward passes for --exact: the bits of a row do not depend on the other rows of its pass.

Pass sizes are found by trial: small passes are padded to one of these sizes, large ones are split. The number of rows
decides which kernel computes a matrix product, and so changes the last digits of every row. No library documents which
numbers of rows give equal bits, so sizes are tried with the target's weights on this machine. Attention must already be
independent of the order of keys (see `exact_attention`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.errors import ConfigError, PairError
from decoder.forward.kv_cache import KvCache
from decoder.forward.linear import HALF
from decoder.forward.protocol import Forward, Ints, Mask, Wrapped
from decoder.forward.taps import LayerStates, tapped

UNPADDED_ROWS, PADDED_ROWS, CUDA_ROWS = 16, 8, 64
"""Largest number of rows in a pass: on a CPU with float32 logits, on a CPU with logits in half precision, on CUDA."""


@dataclass(eq=False)
class Exact(Wrapped):
    """Splits or pads passes to `sizes`, except those of `read`, since all methods read a text in the same chunks."""

    inner: Forward
    sizes: tuple[int, ...]
    """Numbers of rows, ascending; a row has the same bits in passes of all these sizes."""

    def tapped(self, states: LayerStates) -> Forward:
        """The inner form also writes padding rows to `states`; the next pass overwrites them."""
        return replace(self, inner=tapped(self.inner, states))

    def new_cache(self, capacity: int) -> KvCache:
        return self.inner.new_cache(capacity + self.sizes[-1])

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        first, before = cache.used, visible.shape[1] - len(tokens)
        logits = []
        for start, stop, size in parts(len(tokens), self.sizes):
            padding, rows = size - (stop - start), slice(start, stop)
            if padding:
                # The cache grows in steps, since growth by single rows would copy the cache for each row.
                cache.reserve(-(-(first + start + size) // self.sizes[-1]) * self.sizes[-1])
            rows_logits = self.inner.forward(
                cache,
                [*tokens[rows], *[tokens[stop - 1]] * padding],
                [*positions[rows], *[positions[stop - 1]] * padding],
                padded(visible[rows, : before + stop], padding),
            )
            logits.append(rows_logits[: stop - start])
            # The next rows overwrite the padding rows.
            cache.used = first + stop
        return torch.cat(logits) if len(logits) > 1 else logits[0]


def parts(rows: int, sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Start, end and padded size of each part of a pass."""
    for start in range(0, rows, sizes[-1]):
        stop = min(rows, start + sizes[-1])
        yield start, stop, next(size for size in sizes if size >= stop - start)


def padded(visible: NDArray[np.bool_], padding: int) -> NDArray[np.bool_]:
    """The mask with `padding` more rows, each of which attends only to itself."""
    rows, recent = visible.shape
    wider = np.zeros((rows + padding, recent + padding), dtype=np.bool_)
    wider[:rows, :recent] = visible
    wider[rows:, recent:] = np.eye(padding, dtype=np.bool_)
    return wider


def refuse_float64(dtype: torch.dtype) -> None:
    """Raises ConfigError for float64: attention summed in float64 is then no more precise than the model's dtype."""
    if dtype is torch.float64:
        raise ConfigError(
            "--exact sums in float64 and rounds to the dtype, so it guarantees nothing for dtype float64; "
            "give --dtype and --draft-dtype float32, bfloat16 or float16, or leave out --exact",
            "dtype",
            "draft_dtype",
            "exact",
        )


@torch.inference_mode()
def exactly(forward: Forward, words: int, *, cuda: bool) -> Exact:
    """Makes `forward` batch-invariant; `words` is the size of the vocabulary. Raises PairError if the logits of a tree
    and of plain decoding differ in bits even if rows are computed one by one.
    """
    trial = SizeTrial(forward, words)
    tells = trial.tells()
    widest = CUDA_ROWS if cuda else UNPADDED_ROWS if tells else PADDED_ROWS
    while widest > 1 and trial.place_matters(widest):
        widest //= 2
    agreeing = trial.agreeing(widest) if tells and not cuda else (widest,)
    # The smaller sizes may have agreed by chance. If a tree's logits then differ from plain decoding, all passes are
    # padded to the largest size.
    for sizes in dict.fromkeys((agreeing, (widest,))):
        exact = Exact(forward, sizes)
        if SizeTrial(exact, words).tree_agrees():
            return exact
    raise PairError(
        "the target's logits for a draft tree differ in bits from those for plain text, even if rows are computed "
        "one by one; leave out --exact, or choose models of another family"
    )


class SizeTrial:
    """Trial passes over a few random tokens."""

    def __init__(self, forward: Forward, words: int) -> None:
        random = np.random.default_rng(0)
        self._forward = forward
        self._tokens: list[int] = random.integers(0, words, CUDA_ROWS).tolist()
        self._text = self._tokens[:3]
        self._cache = forward.new_cache(len(self._text) + CUDA_ROWS)
        forward.read(self._cache, self._text)

    def tells(self) -> bool:
        """Whether logits are more precise than half precision, so that a changed order of summation changes their bits
        (rounding to half precision would hide the change).
        """
        logits = self._siblings(self._tokens[:1])
        return not any(torch.equal(logits.to(half).to(logits.dtype), logits) for half in HALF)

    def place_matters(self, rows: int) -> bool:
        """Whether a row's bits depend on its index in a pass of `rows` rows, or on the other rows of the pass."""
        tokens = self._tokens[:rows]
        expected = self._siblings(tokens)
        rolled = (torch.equal(self._siblings(tokens[by:] + tokens[:by]).roll(by, 0), expected) for by in (1, rows // 2))
        return not all(rolled) or not torch.equal(self._siblings(tokens[:1] * rows), expected[:1].expand_as(expected))

    def agreeing(self, widest: int) -> tuple[int, ...]:
        """Numbers of rows whose passes give a row the same bits as a pass of `widest` rows."""
        tokens = self._tokens[:widest]
        expected = self._siblings(tokens)

        def agree(part: slice) -> bool:
            return torch.equal(self._siblings(tokens[part]), expected[part])

        smaller = [rows for rows in range(1, widest) if agree(slice(0, rows)) and agree(slice(widest - rows, widest))]
        return (*smaller, widest)

    def tree_agrees(self) -> bool:
        """Whether the logits of each node of a small tree have the same bits as in plain decoding of its path."""
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
        """Logits of rows that all follow the trial's text directly, as siblings."""
        rows = len(tokens)
        logits = self._forward.forward(self._cache, tokens, [len(self._text)] * rows, np.eye(rows, dtype=np.bool_))
        self._cache.keep([])
        return logits

    def _decoded(self, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """Logits after tokens that continue the trial's text and are decoded one by one."""
        cache, logits = self._forward.new_cache(len(self._text) + len(tokens)), torch.empty(0)
        self._forward.read(cache, self._text)
        for at, token in enumerate(tokens, len(self._text)):
            logits = self._forward.forward(cache, [token], [at], np.ones((1, 1), dtype=np.bool_))[0]
            cache.keep([at])
        return logits

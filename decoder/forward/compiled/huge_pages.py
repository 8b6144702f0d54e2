"""Memory in huge pages, where the operating system has them: with pages of 4 KB, a pass over the weights and the cached
keys and values misses the TLB at every page. Knows tensors, but no models.
"""

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

PAGE = 2 << 20
"""Bytes of a huge page on x86-64, and on aarch64 with base pages of 4 KB."""
CHUNK = 16 * PAGE
_LINE = 64
"""Alignment of tensors in bytes."""


def zeros(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of at least a page is a mapping of its own, which is released with it."""
    size = math.prod(shape) * dtype.itemsize
    if size < PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(*shape, dtype=dtype)
    mapping = mmap.mmap(-1, size + PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # A kernel without huge pages; the mapping then has small ones.
        mapping.madvise(mmap.MADV_HUGEPAGE)
    before = -torch.frombuffer(mapping, dtype=torch.uint8).data_ptr() % PAGE
    return torch.frombuffer(mapping, dtype=dtype, count=math.prod(shape), offset=before).view(*shape)


class Pool:
    """Tensors of any size side by side, so that small ones too are in huge pages; all are released together."""

    def __init__(self) -> None:
        self._free = torch.empty(0, dtype=torch.uint8)

    def copied(self, tensor: Tensor) -> Tensor:
        """The same numbers in memory of the pool, without gaps."""
        size = -(-tensor.nbytes // _LINE) * _LINE
        if size > len(self._free):
            self._free = zeros([max(CHUNK, -(-size // PAGE) * PAGE)], torch.uint8)
        copy = self._free[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        self._free = self._free[size:]
        return copy.copy_(tensor)

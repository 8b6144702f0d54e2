"""Tensors in huge pages of memory, if the operating system supports them: with pages of 4 KB, reading the weights and
the KV cache in a forward pass misses the TLB at every page. Independent of models.
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
    """A tensor of zeros. A tensor of at least a huge page gets its own memory mapping, which is released with it."""
    size = math.prod(shape) * dtype.itemsize
    if size < PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(*shape, dtype=dtype)
    mapping = mmap.mmap(-1, size + PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # On a kernel without huge pages, the mapping has small pages.
        mapping.madvise(mmap.MADV_HUGEPAGE)
    before = -torch.frombuffer(mapping, dtype=torch.uint8).data_ptr() % PAGE
    return torch.frombuffer(mapping, dtype=dtype, count=math.prod(shape), offset=before).view(*shape)


class Pool:
    """Memory that many tensors share, so that small tensors are in huge pages too; released with its last tensor."""

    def __init__(self) -> None:
        self._free = torch.empty(0, dtype=torch.uint8)

    def copied(self, tensor: Tensor) -> Tensor:
        """A contiguous copy of a tensor in the memory of the pool."""
        size = -(-tensor.nbytes // _LINE) * _LINE
        if size > len(self._free):
            self._free = zeros([max(CHUNK, -(-size // PAGE) * PAGE)], torch.uint8)
        copy = self._free[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        self._free = self._free[size:]
        return copy.copy_(tensor)

"""Checks whether work can be captured as a CUDA graph, by running the work once before any capture.

A capture that fails corrupts the state of torch's memory allocator, so a capture must not begin if it would fail. The
check detects operations for which the host waits: reading numbers back, tensors whose size depends on data, and copies
between host and device.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from decoder.system.device import without_gradients

BY_DATA = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})
CHOSEN = torch.ops.aten.index.Tensor
"""Indexing by tensors: the output's size depends on data only if an index is a Boolean mask."""
COPIES = frozenset({torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default})  # noqa: SLF001 - torch names it so
FROM_THE_HOST = frozenset({torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default})
"""Operators that run after a constant was copied from the host; the copy itself does not appear as an operator."""


class NotCapturableError(RuntimeError):
    """Raised for work that cannot be captured as a CUDA graph."""


def refuse_waits(work: Callable[[], object], device: torch.device) -> None:
    """Runs the work once; raises NotCapturableError if the host would wait for the device."""
    with without_gradients(), _Watch(device):
        work()


class _Watch(TorchDispatchMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        devices = _devices((args, kwargs))
        if self._device.type in devices and _depends_on_data(func, args):
            raise NotCapturableError(f"{func} copies numbers to the host")
        if self._device.type in devices and func in FROM_THE_HOST:
            raise NotCapturableError("a constant is copied from the host, which a CUDA graph cannot do")
        result = func(*args, **kwargs)
        if func in COPIES and len(devices | _devices(result)) > 1:
            raise NotCapturableError(f"{func} copies between the device and the host")
        return result


def _devices(values: Any) -> set[str]:
    return {leaf.device.type for leaf in tree_leaves(values) if isinstance(leaf, Tensor)}


def _depends_on_data(func: Any, args: Sequence[Any]) -> bool:
    if func is CHOSEN:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return bool(BY_DATA.intersection(func.tags))

"""Whether work can be captured as a graph, found out by doing it once: before a device refuses it.

A capture that fails leaves torch's account of the device's memory in disorder; one that is never begun does no harm.
Knows only what makes the host wait: numbers that are read back, sizes that depend on data, copies from and to the host.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from decoder.device import without_gradients

BY_DATA = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})
CHOSEN = torch.ops.aten.index.Tensor
"""Its size depends on data only where it is given a mask."""
COPIES = frozenset({torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default})  # noqa: SLF001 - its name
FROM_THE_HOST = frozenset({torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default})
"""What follows a copy of the host's numbers that cannot be seen."""


class NotCapturableError(RuntimeError):
    """A device cannot repeat this work."""


def refuse_waits(work: Callable[[], object], device: torch.device) -> None:
    """Does the work.

    Raises:
        NotCapturableError: In it, the host waits for the device.
    """
    with without_gradients(), _Watch(device):
        work()


class _Watch(TorchDispatchMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = _devices((args, kwargs))
        if self._device.type in given and _depends_on_data(func, args):
            raise NotCapturableError(f"{func} reads numbers back")
        if self._device.type in given and func in FROM_THE_HOST:
            raise NotCapturableError("a constant is copied from the host")
        result = func(*args, **kwargs)
        if func in COPIES and len(given | _devices(result)) > 1:
            raise NotCapturableError(f"{func} copies between the device and the host")
        return result


def _devices(given: Any) -> set[str]:
    return {leaf.device.type for leaf in tree_leaves(given) if isinstance(leaf, Tensor)}


def _depends_on_data(func: Any, args: Sequence[Any]) -> bool:
    if func is CHOSEN:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return bool(BY_DATA.intersection(func.tags))

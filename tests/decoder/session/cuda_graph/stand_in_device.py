"""Torch's meta device as a stand-in for a GPU: its tensors have shapes but no values.

Work that runs there does not touch the host's memory and reads no value back. Nothing is computed.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from decoder.session.cuda_graph.capture_guard import NotCapturableError
from decoder.system.device import without_gradients

T = TypeVar("T")
META = torch.device("meta")


class _MetaOnly(TorchDispatchMode):
    """Refuses operations that touch the memory of another device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, Tensor) and leaf.device != META:
                raise NotCapturableError(f"{func} touches the memory of {leaf.device}")
        return result


@contextmanager
def meta_only() -> Iterator[None]:
    """Requires that all work within the context is on the meta device."""
    with without_gradients(), _MetaOnly():
        yield


def moved(thing: T) -> T:
    """A copy with all tensors on the meta device."""

    def copied(tensor: Tensor, _: Any) -> Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Parameter, "__deepcopy__", copied)
        patch.setattr(Tensor, "__deepcopy__", copied)
        return copy.deepcopy(thing)

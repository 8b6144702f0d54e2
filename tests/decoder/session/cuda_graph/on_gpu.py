"""Tiny pairs on a GPU, and a check for hidden waits for the device."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from decoder import load_pair
from decoder.engine import Engine
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.system.device import Graphs
from tests.decoder.makers import TinyModels

gpu = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="needs a CUDA device: torch sees none, so there is nothing to capture graphs on",
)


def on_gpu(tiny_models: TinyModels, name: str, dtype: str, *, graphs: bool = True) -> Engine:
    pair = tiny_models.pair(name)
    loaded: Engine = tiny_models._once(
        ("on the GPU", pair, dtype),
        # The slots that a trial of kernels fills are replaced below.
        lambda: load_pair(str(pair.target), str(pair.draft), device="cuda", dtype=dtype, kernels=False),
    )
    calls = None if graphs else SimpleNamespace(capture=lambda work, _: work)
    return replace(loaded, slots=GraphSlots(_captures=cast("Graphs | None", calls)))


@contextmanager
def no_hidden_waits() -> Iterator[None]:
    """Makes every call that waits for the device, other than for an event, an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

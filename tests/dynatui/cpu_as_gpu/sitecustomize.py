"""Where this folder is on Python's path, `cuda` is the CPU and large models are small: for walks through all steps.

Rounds run as on a GPU, but that plain calls stand for graphs. Tests that need a GPU are skipped as ever, and a profiler
sees no kernels.
"""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from decoder.system import device

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
SMALL |= {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 288}


def small(right: Callable[[str], Any]) -> Callable[[str], Any]:
    """Configurations of the same families, with few weights."""

    def read(name: str) -> Any:
        config = right(name)
        for field, value in SMALL.items():
            if hasattr(config, field):
                setattr(config, field, value)
        return config

    return read


def pretend() -> None:
    """Takes the place of what knows the device, before anybody imports it."""
    vars(device).update(
        choose_device=lambda _: torch.device("cpu"), has_graphs=lambda _: True, require_compilable=lambda *_, **__: None
    )
    vars(torch.cuda).update(get_device_properties=lambda *_: SimpleNamespace(name="a stand-in"))
    from decoder.bench import shapes  # noqa: PLC0415 - it takes these names over

    vars(shapes).update(_config=small(shapes._config))


if not {"pytest", "--output"} & {*sys.orig_argv}:  # pytest wants to be the first to import what tests use
    pretend()

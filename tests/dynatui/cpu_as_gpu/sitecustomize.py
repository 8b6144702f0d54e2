"""With this folder on Python's path, device `cuda` is the CPU and large models are small; used to run all GPU steps.

Rounds run as on a GPU, with plain calls in place of CUDA graphs. Tests that need a GPU are still skipped, and profilers
see no kernels.
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
    """Replaces a function that reads configurations by one whose configurations have small sizes."""

    def read(name: str) -> Any:
        config = right(name)
        for field, value in SMALL.items():
            if hasattr(config, field):
                setattr(config, field, value)
        return config

    return read


def pretend() -> None:
    """Replaces the functions that choose and describe the device, before other modules import them."""
    vars(device).update(
        choose_device=lambda _: torch.device("cpu"), has_graphs=lambda _: True, require_compilable=lambda *_, **__: None
    )
    vars(torch.cuda).update(get_device_properties=lambda *_: SimpleNamespace(name="a stand-in"))
    from decoder.bench import shapes  # noqa: PLC0415 - its import copies the replaced names

    vars(shapes).update(_config=small(shapes._config))


if not {"pytest", "--output"} & {*sys.orig_argv}:  # pytest must be the first to import modules that it rewrites
    pretend()

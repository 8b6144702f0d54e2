"""Pretends that torchrun has started this process as one of several."""

from dataclasses import astuple
from typing import Any

import pytest
import torch

from decoder.tensor_parallel import check
from decoder.tensor_parallel.ranks import VARIABLES, Ranks

FIRST_OF_TWO = Ranks(0, 2, local=0, local_count=2)


def variables(ranks: Ranks) -> dict[str, str]:
    return dict(zip(VARIABLES, map(str, astuple(ranks)), strict=True))


def require_spreadable(config: Any, count: int = 2, name: str = "owner/tiny.gguf") -> None:
    """The check of a target for `count` processes on a CPU; no file of this name is looked for."""
    check.require_spreadable(name, config, Ranks(0, count, local=0, local_count=count), torch.device("cpu"))


def start_as(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables(ranks).items():
        monkeypatch.setenv(name, value)

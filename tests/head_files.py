"""Changes of the files of a checkpoint, refusals in one line, and the tokens that targets of random heads choose."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from decoder.errors import DecoderError
from tests import tiny

Weights = dict[str, Tensor]
FAVOURITES = (7, 41, 99, 150, 250)
"""Tokens that the targets choose nearly always."""


def with_favourites(model: Any) -> Any:
    """The model, with other tokens made improbable."""
    others = [token for token in range(tiny.VOCABULARY) if token not in FAVOURITES]
    with torch.no_grad():
        model.get_output_embeddings().weight[others] *= 0.05
    return model


def rewrite(folder: Path, change: Mapping[str, Tensor | None] | Callable[[Weights], Weights]) -> None:
    """Changes the weights in a folder: adds or replaces those of a mapping, and removes those whose value is None."""
    held = load_file(folder / "model.safetensors")
    new: Mapping[str, Tensor | None] = {**held, **change} if isinstance(change, Mapping) else change(held)
    kept = {key: tensor for key, tensor in new.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def in_two_files(folder: Path, second: Callable[[str], bool]) -> list[str]:
    """Moves the weights to two files with an index; returns their names. The second has those with such names."""
    held = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = [f"model-{part}-of-2.safetensors" for part in (1, 2)]
    for name, in_second in zip(names, (False, True), strict=True):
        part = {key: tensor for key, tensor in held.items() if second(key) == in_second}
        save_file(part, folder / name, metadata={"format": "pt"})
    places = {key: names[second(key)] for key in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return names


def reconfigure(folder: Path, changes: Mapping[str, Any], name: str = "config.json") -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@contextmanager
def refused(error: type[DecoderError], *said: str) -> Iterator[None]:
    """What is done in this context is refused in one line that contains all these parts."""
    with pytest.raises(error) as refusal:
        yield
    message = str(refusal.value)
    assert "\n" not in message
    assert len(message.split()) > 6
    assert [part for part in said if part not in message] == [], message

"""Helpers that change the files of a head or check the message of a refusal."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from decoder.errors import DecoderError


def rewrite(folder: Path, changes: Mapping[str, Tensor | None]) -> None:
    """Adds or replaces weights in a folder's model.safetensors; a weight whose new value is None is removed."""
    held: dict[str, Tensor | None] = {**load_file(folder / "model.safetensors"), **changes}
    save_file(
        {key: tensor for key, tensor in held.items() if tensor is not None},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def reconfigure(folder: Path, changes: Mapping[str, Any]) -> None:
    """Changes fields of a folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def one_line(refusal: pytest.ExceptionInfo[DecoderError], *said: str) -> bool:
    """Whether the message of a refusal is one line that contains all these parts."""
    message = str(refusal.value)
    return "\n" not in message and len(message.split()) > 6 and all(part in message for part in said)

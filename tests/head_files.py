"""What the tiny random drafting heads of all kinds share: targets, weights and files; and changes of a head's files.

A random head guesses at random. The target nearly always chooses one of a few favourite tokens, and most heads have
only these in their vocabulary, so that some guesses are right.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from decoder.errors import DecoderError
from tests import tiny

Weights = dict[str, Tensor]
LAYERS = 8
"""Number of the target's layers: enough for the three layers that a head reads by default to differ."""
WIDTH = 32
"""Hidden size of the tiny targets."""
FAVOURITES = (7, 41, 99, 150, 250)
"""Tokens that the targets choose nearly always."""
HEADS, SHARED, HEAD_WIDTH, INNER = 4, 2, 8, 40
"""Number of attention heads, number of key-value heads, width of a head, and width of the MLP."""
LAYER: dict[str, Any] = {
    "vocab_size": tiny.VOCABULARY, "num_attention_heads": HEADS, "num_key_value_heads": SHARED, "head_dim": HEAD_WIDTH,
    "intermediate_size": INNER, "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 2048,
}  # fmt: skip
"""Fields of every head's configuration."""


def with_favourites(model: Any) -> Any:
    """The model, with other tokens made improbable."""
    others = [token for token in range(tiny.VOCABULARY) if token not in FAVOURITES]
    with torch.no_grad():
        model.get_output_embeddings().weight[others] *= 0.05
    return model


def target(family: str) -> Any:
    """A tiny target of eight layers that nearly always chooses one of its favourites."""
    depth = "n_layer" if family == "gpt2" else "num_hidden_layers"
    return with_favourites(tiny.build(tiny.FAMILIES[family](**{depth: LAYERS}), seed=1, spread=0.2))


def drawn(shapes: Mapping[str, tuple[int, ...]], *, maps_tokens: bool) -> Weights:
    """Random weights of these shapes, and the maps between the favourites and the target's vocabulary."""
    generator, found = torch.Generator().manual_seed(5), Weights()
    for name, shape in shapes.items():
        numbers = torch.randn(shape, generator=generator)
        found[name] = 1 + 0.2 * numbers if "norm" in name or "base_kernel" in name else 0.35 * numbers
    if maps_tokens:
        found["d2t"] = torch.tensor([token - index for index, token in enumerate(FAVOURITES)])
        found["t2d"] = torch.tensor([token in FAVOURITES for token in range(tiny.VOCABULARY)])
    return found


def saved_head(folder: Path, config: Mapping[str, Any], weights: Weights) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@dataclass(frozen=True)
class Heads:
    """Layouts of the heads of one kind, and how a head is saved."""

    word: str
    layouts: Mapping[str, Any]
    save: Callable[[Path, Any], Path]

    def name(self, family: str, layout: str) -> str:
        """Name of a pair in `TinyModels`."""
        return f"{self.word} {family} {layout}"

    def pair(self, family: str, layout: str, home: Path) -> tiny.TinyPair:
        made = tiny.save(home / "target", target(family), tiny.train_tokenizer())
        return tiny.TinyPair(made, self.save(home / "head", self.layouts[layout]))

    def pairs(self) -> dict[str, Callable[[Path], tiny.TinyPair]]:
        """A pair of every layout with every family of targets, by name."""
        every = product(tiny.FAMILIES, self.layouts)
        return {self.name(*each): partial(self.pair, *each) for each in every}


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


def one_line(refusal: pytest.ExceptionInfo[DecoderError], *said: str) -> bool:
    """Whether the message of a refusal is one line that contains all these parts."""
    message = str(refusal.value)
    return "\n" not in message and len(message.split()) > 6 and all(part in message for part in said)


@contextmanager
def refused(error: type[DecoderError], *said: str) -> Iterator[None]:
    """What is done in this context is refused in one line that contains all these parts."""
    with pytest.raises(error) as refusal:
        yield
    assert one_line(refusal, *said), str(refusal.value)

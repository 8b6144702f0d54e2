"""Reads weights of drafting heads, only from safetensors; each tensor must have a known name and the expected shape.

A drafting head is a network that drafts from the layer states of one target. Pickled weights are never opened, and no
code of a checkpoint is run. An error names the tensor, its shape and the expected shape.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from decoder.errors import ModelError, PairError, first_line
from decoder.forward.families.architecture import Architecture
from decoder.models.known_checkpoint import weight_files

EMBEDDING = "embed_tokens.weight"
NUMBERS = "d2t", "t2d"
"""Names of the tensors that contain integers or booleans; all other tensors contain floating-point numbers."""
AGAIN = "download the head again, or choose another --draft"
Sizes = Mapping[str, tuple[int, ...]]
"""Shapes of weights by name."""


@dataclass(frozen=True)
class TargetSizes:
    """Sizes of a target, which a drafting head must match."""

    name: str
    vocabulary: int
    width: int
    """Width of a hidden row."""
    layers: int


class FitShape(Protocol):
    """The part of a head's configuration that its target must match."""

    @property
    def layer(self) -> Architecture:
        """Architecture of the head's layers; `vocab_size` is the target's."""

    @property
    def target_width(self) -> int:
        """Width of a hidden row of the target."""

    def layers_of(self, target_layers: int) -> tuple[int, ...]:
        """The target layers whose inputs the head reads, if the target has `target_layers` layers."""


def sizes_of(name: str, config: Any) -> TargetSizes:
    """Vocabulary size, width and number of layers of a target, from its configuration, before the target is loaded."""
    text = config if isinstance(config, Architecture) else config.get_text_config()
    return TargetSizes(name, text.vocab_size, text.hidden_size, text.num_hidden_layers)


def fitting_layers(shown: str, shape: FitShape, target: TargetSizes) -> tuple[int, ...]:
    """Layers of the target whose inputs the head reads; raises PairError if head and target do not fit each other."""
    if shape.layer.vocab_size != target.vocabulary:
        raise PairError(
            f"{shown} was made for a vocabulary of {shape.layer.vocab_size} tokens, but the vocabulary of "
            f"{target.name} has {target.vocabulary}; choose the head that was made for this target"
        )
    if shape.target_width != target.width:
        raise PairError(
            f"{shown} was made for hidden rows of width {shape.target_width}, but those of {target.name} have "
            f"width {target.width}; choose the head that was made for this target"
        )
    layers = shape.layers_of(target.layers)
    if not all(low < high for low, high in zip((-1, *layers), (*layers, target.layers), strict=True)):
        raise PairError(
            f"{shown} reads the inputs of layers {', '.join(map(str, layers))}, counted from 0, but {target.name} has "
            f"only {target.layers} layers; choose the head that was made for this target"
        )
    return layers


def read_weights(
    name: str, shown: str, kind: str, wanted: Sizes, optional: Sizes, own_name: Callable[[str], str | None]
) -> dict[str, Tensor]:
    """All weights of a head, by name.

    Args:
        name: Hub id or folder.
        shown: Name for messages.
        kind: Kind of the head, for messages, for example "EAGLE-3 head".
        wanted: Shapes of required weights, by name.
        optional: Shapes of optional weights, by name.
        own_name: Function that turns a weight's name in a file into its name in `wanted` or `optional`; it returns None
            if the weight is not used.

    Raises:
        ModelError: The weights cannot be read, or do not have these names and shapes.
    """
    known, tensors = {**optional, **wanted}, dict[str, Tensor]()
    files = weight_files(name)
    if not files:
        raise ModelError(
            f"{shown} has no weights in safetensors, and pickled weights are not opened; convert them to "
            "safetensors, or choose another --draft"
        )
    for key, tensor in chain.from_iterable(weights_in(path, shown, own_name) for path in files):
        _check(shown, kind, key, tensor, known.get(key))
        tensors[key] = tensor
    if lacking := [key for key in wanted if key not in tensors]:
        key = lacking[0]
        raise ModelError(f"{shown} lacks the weight {key} of shape {written(wanted[key])}; {AGAIN}")
    return tensors


def _check(shown: str, kind: str, key: str, tensor: Tensor, size: tuple[int, ...] | None) -> None:
    """Raises ModelError for a weight with an unknown name, or with an unexpected shape or dtype."""
    if size is None:
        raise ModelError(
            f"{shown} has a weight {key} of shape {written(tensor.shape)}, but a {kind} with its configuration has no "
            f"such weight; {AGAIN}"
        )
    if tensor.is_floating_point() == (key in NUMBERS):
        raise ModelError(f"{key} of {shown} has dtype {tensor.dtype}, which is not supported; {AGAIN}")
    if tuple(tensor.shape) != size:
        raise ModelError(
            f"{key} of {shown} has shape {written(tensor.shape)}, but its configuration says {written(size)}; {AGAIN}"
        )


def weights_in(path: Path, shown: str, own_name: Callable[[str], str | None]) -> Iterator[tuple[str, Tensor]]:
    """Yields name and tensor of each used weight of a file; the name is the result of `own_name`. Raises ModelError if
    the file cannot be read.
    """
    try:
        with safe_open(path, "pt") as file:
            for there in file.keys():  # noqa: SIM118 - the file is no mapping
                key = own_name(there)
                if key is not None:
                    # Copied, since the tensor is a memory map of the file, which another process may change.
                    yield key, file.get_tensor(there).clone()
    except (SafetensorError, OSError) as error:
        raise ModelError(f"cannot read {path.name} of {shown}: {first_line(error)}; {AGAIN}") from error


def token_ids(shown: str, tensors: Mapping[str, Tensor], words: int) -> Tensor | None:
    """For each of the head's token ids, the target's id of the same token, which must be below `words`; computed from
    the differences in `d2t`, shape (D,). None if there is no `d2t`; head and target then have the same ids.
    """
    if (offsets := tensors.get("d2t")) is None:
        return None
    tokens = offsets.long() + torch.arange(len(offsets))
    if len(tokens.unique()) < len(tokens) or not ((tokens >= 0) & (tokens < words)).all():
        raise ModelError(
            f"d2t of {shown} does not map its {len(tokens)} tokens to distinct token ids below {words}; {AGAIN}"
        )
    return tokens


def written(shape: tuple[int, ...]) -> str:
    """A shape as text, for example "(2, 3)"."""
    return f"({', '.join(map(str, shape))})"

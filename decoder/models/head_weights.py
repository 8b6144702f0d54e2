"""Reads weights of drafting heads, only from safetensors, into modules that have exactly these weights.

Pickled weights are never opened, and no code of a checkpoint is run. An error message names missing, unknown and
misshapen tensors, at most `NAMED` of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from torch import Tensor

from decoder.errors import ModelError, PairError, first_line
from decoder.forward.families.architecture import Architecture
from decoder.heads.parts import OFFSETS, HeadModule, Shape
from decoder.models.checkpoint_files import weight_files
from decoder.models.head_config import AGAIN

NAMED = 4


@dataclass(frozen=True)
class TargetSizes:
    """Sizes of a target, which a drafting head must match."""

    name: str
    vocabulary: int
    width: int
    """Width of a hidden row."""
    layers: int


def sizes_of(name: str, config: Any) -> TargetSizes:
    """Sizes of a target, from its configuration, before the target is loaded."""
    text = config if isinstance(config, Architecture) else config.get_text_config()
    return TargetSizes(name, text.vocab_size, text.hidden_size, text.num_hidden_layers)


def fitting_layers(shown: str, shape: Shape, target: TargetSizes) -> tuple[int, ...]:
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


def read_tensors(name: str, shown: str, own_name: Callable[[str], str | None]) -> dict[str, Tensor]:
    """All used tensors in the files of a hub id or folder. Raises ModelError if the files cannot be read.

    `own_name` turns a tensor's name in a file into its name in the head's module; None if the tensor is not used.
    """
    files = weight_files(name)
    if not files:
        raise ModelError(
            f"{shown} has no weights in safetensors, and pickled weights are not opened; convert them to "
            "safetensors, or choose another --draft"
        )
    return dict(chain.from_iterable(weights_in(path, shown, own_name) for path in files))


def filled(head: HeadModule, tensors: dict[str, Tensor], device: torch.device, dtype: torch.dtype) -> HeadModule:
    """The head, which was built on the meta device, with the weights `tensors` on `device` in `dtype`. Raises
    ModelError if the tensors are not exactly the head's.
    """
    wanted, given = head.state_dict(), dict(tensors)
    words = head.embed_tokens.num_embeddings
    if len(wanted[OFFSETS]) == words:
        given.setdefault(OFFSETS, torch.zeros(words, dtype=torch.long))
    faults = [
        *(f"lacks the weight {key} of shape {written(wanted[key].shape)}" for key in wanted if key not in given),
        *(fault for key, tensor in given.items() if (fault := _fault(head.kind, key, tensor, wanted.get(key)))),
    ]
    if faults:
        more = f", and {len(faults) - NAMED} more faults" if len(faults) > NAMED else ""
        raise ModelError(f"{head.name} {', and '.join(faults[:NAMED])}{more}; {AGAIN}")
    tokens = _token_ids(head.name, given[OFFSETS], words)
    weights = {key: tensor.to(device, None if key == OFFSETS else dtype) for key, tensor in given.items()}
    head.requires_grad_(requires_grad=False).load_state_dict(weights, assign=True)
    head.tokens, head.frequencies = None if tokens is None else tokens.to(device), head.frequencies.to(device)
    return head


def _fault(kind: str, key: str, tensor: Tensor, wanted: Tensor | None) -> str:
    if wanted is None:
        return (
            f"has a weight {key} of shape {written(tensor.shape)}, but a {kind} with its configuration has no such "
            "weight"
        )
    if tensor.is_floating_point() == (key == OFFSETS):
        return f"has a weight {key} of dtype {tensor.dtype}, which is not supported"
    if tensor.shape != wanted.shape:
        shapes = f"{written(tensor.shape)}, but its configuration says {written(wanted.shape)}"
        return f"has a weight {key} of shape {shapes}"
    return ""


def weights_in(path: Path, shown: str, own_name: Callable[[str], str | None]) -> Iterator[tuple[str, Tensor]]:
    """Yields (name from `own_name`, tensor) for each used weight. Raises ModelError if the file cannot be read."""
    try:
        with safe_open(path, "pt") as file:
            for there in file.keys():  # noqa: SIM118 - the file is no mapping
                key = own_name(there)
                if key is not None:
                    # Copied, since the tensor is a memory map of the file, which another process may change.
                    yield key, file.get_tensor(there).clone()
    except (SafetensorError, OSError) as error:
        raise ModelError(f"cannot read {path.name} of {shown}: {first_line(error)}; {AGAIN}") from error


def _token_ids(shown: str, offsets: Int[Tensor, "D"], words: int) -> Int[Tensor, "D"] | None:
    """The target's token id for each token id of the head; None if all are equal. `offsets` are the target's ids minus
    the head's. Raises ModelError unless the target's ids are distinct and below `words`.
    """
    tokens = offsets.long() + torch.arange(len(offsets))
    if len(tokens.unique()) < len(tokens) or not ((tokens >= 0) & (tokens < words)).all():
        raise ModelError(
            f"{OFFSETS} of {shown} does not map its {len(tokens)} tokens to distinct token ids below {words}; {AGAIN}"
        )
    return tokens if len(tokens) < words or offsets.any() else None


def written(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"

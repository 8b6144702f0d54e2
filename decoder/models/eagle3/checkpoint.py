"""Reads weights of EAGLE-3 heads, only from safetensors; each tensor must have a known name and the expected shape.

Pickled weights are never opened, and no code of a checkpoint is run. An error names the tensor, its shape and the
expected shape.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from decoder.errors import ModelError, PairError, first_line
from decoder.forward.eagle3.head import Head
from decoder.forward.eagle3.shape import LAYER, HeadShape, TargetSizes, optional_shapes, shapes, usual_layers
from decoder.forward.families.architecture import Architecture
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import display_name
from decoder.models.known_checkpoint import weight_files

UNUSED = re.compile(r"(^verifier_(norm|lm_head)\.weight|rotary_emb\.inv_freq)$")
"""Names of tensors in published files that the head does not use."""
EMBEDDING = "embed_tokens.weight"
NUMBERS = "d2t", "t2d"
"""Names of the tensors of integers; all other tensors hold real numbers."""
AGAIN = "download it again, or choose another --draft"


def load_head(name: str, shape: HeadShape, target: LanguageModel, dtype: torch.dtype) -> Head:
    """Loads the EAGLE-3 head of a hub id or folder onto the device of its target.

    Raises:
        ModelError: The head's weights cannot be read, or do not fit its configuration.
        PairError: The head was made for another target.
    """
    shown = display_name(name)
    sizes = TargetSizes(target.name, target.width, target.embedding.shape[1], target.layers)
    layers = fitting_layers(shown, shape, sizes)
    tensors = _tensors(name, shown, shape)
    tokens = _tokens(shown, shape, tensors)
    rows = tensors.pop(EMBEDDING, None)
    own = {key: tensor.to(target.device, dtype) for key, tensor in tensors.items() if tensor.is_floating_point()}
    return Head(
        name=shown,
        shape=shape,
        layers=layers,
        weights=own,
        embedding=(target.embedding if rows is None else rows).to(target.device, dtype),
        tokens=None if tokens is None else tokens.to(target.device),
    )


def sizes_of(name: str, config: Any) -> TargetSizes:
    """Vocabulary size, width and number of layers of a target, from its configuration, before the target is loaded."""
    text = config if isinstance(config, Architecture) else config.get_text_config()
    return TargetSizes(name, text.vocab_size, text.hidden_size, text.num_hidden_layers)


def fitting_layers(shown: str, shape: HeadShape, target: TargetSizes) -> tuple[int, ...]:
    """Layers of the target whose inputs the head reads; raises PairError if head and target do not fit each other."""
    if shape.layer.vocab_size != target.vocabulary:
        raise PairError(
            f"{shown} was made for a target of {shape.layer.vocab_size} tokens, and {target.name} has "
            f"{target.vocabulary}; choose the head that was made for this target"
        )
    if shape.target_width != target.width:
        raise PairError(
            f"{shown} was made for hidden rows of width {shape.target_width}, and {target.name} has width "
            f"{target.width}; choose the head that was made for this target"
        )
    layers = shape.target_layers or usual_layers(target.layers)
    if not all(low < high for low, high in zip((-1, *layers), (*layers, target.layers), strict=True)):
        raise PairError(
            f"{shown} reads the inputs of layers {', '.join(map(str, layers))}, counted from 0, and {target.name} has "
            f"{target.layers} layers; choose the head that was made for this target"
        )
    return layers


def _tensors(name: str, shown: str, shape: HeadShape) -> dict[str, Tensor]:
    """All weights of a head, by name; `shapes` lists the names."""
    wanted = shapes(shape)
    known, tensors = {**optional_shapes(shape), **wanted}, dict[str, Tensor]()
    files = weight_files(name)
    if not files:
        raise ModelError(
            f"{shown} has no weights in safetensors, and pickled ones are not opened; convert them, or choose another "
            "--draft"
        )
    for key, tensor in chain.from_iterable(_read(path, shown) for path in files):
        _check(shown, key, tensor, known.get(key))
        tensors[key] = tensor
    if lacking := [key for key in wanted if key not in tensors]:
        key = lacking[0]
        raise ModelError(f"{shown} lacks {key} of shape {_written(wanted[key])}; {AGAIN}")
    if EMBEDDING not in tensors and shape.layer.hidden_size != shape.target_width:
        raise ModelError(
            f"{shown} lacks {EMBEDDING} of shape {_written(known[EMBEDDING])}, and the target's embedding has width "
            f"{shape.target_width}; {AGAIN}"
        )
    return tensors


def _check(shown: str, key: str, tensor: Tensor, size: tuple[int, ...] | None) -> None:
    """Refuses a weight with an unknown name, or of another shape or dtype than expected."""
    if size is None:
        raise ModelError(
            f"{shown} has a weight {key} of shape {_written(tensor.shape)}, which no EAGLE-3 head with its "
            f"configuration has; {AGAIN}"
        )
    if tensor.is_floating_point() == (key in NUMBERS):
        raise ModelError(f"{key} of {shown} has dtype {tensor.dtype}, which is not supported; {AGAIN}")
    if tuple(tensor.shape) != size:
        raise ModelError(
            f"{key} of {shown} has shape {_written(tensor.shape)}, where its configuration says {_written(size)}; "
            f"{AGAIN}"
        )


def _read(path: Path, shown: str) -> Iterator[tuple[str, Tensor]]:
    """The weights in a file, without unused ones, as (name without the saving library's prefix, tensor)."""
    try:
        with safe_open(path, "pt") as file:
            for there in file.keys():  # noqa: SIM118 - it is no mapping
                key = there.removeprefix("model.").replace("midlayer.", f"{LAYER}.")
                if not UNUSED.search(key):
                    # A copy: the tensor maps the file, which another process may change.
                    yield key, file.get_tensor(there).clone()
    except (SafetensorError, OSError) as error:
        raise ModelError(f"cannot read {path.name} of {shown}: {first_line(error)}; {AGAIN}") from error


def _tokens(shown: str, shape: HeadShape, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """For each of the head's token ids, the target's id, from the differences in `d2t`; shape (D,)."""
    if (offsets := tensors.get("d2t")) is None:
        return None
    words = shape.layer.vocab_size
    tokens = offsets.long() + torch.arange(len(offsets))
    if len(tokens.unique()) < len(tokens) or not ((tokens >= 0) & (tokens < words)).all():
        raise ModelError(f"d2t of {shown} does not name {len(tokens)} different token ids below {words}; {AGAIN}")
    return tokens


def _written(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"

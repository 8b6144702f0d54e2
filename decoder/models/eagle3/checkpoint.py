"""Reads the weights of EAGLE-3 heads; see `decoder.models.head_weights`."""

import re

import torch

from decoder.errors import ModelError
from decoder.forward.eagle3.head import Head
from decoder.forward.eagle3.shape import LAYER, HeadShape, optional_shapes, shapes
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import display_name
from decoder.models.head_weights import (
    AGAIN,
    EMBEDDING,
    TargetSizes,
    fitting_layers,
    read_weights,
    token_ids,
    written,
)

UNUSED = re.compile(r"(^verifier_(norm|lm_head)\.weight|rotary_emb\.inv_freq)$")
"""Pattern of the names of tensors in published files that the head does not use."""


def load_head(name: str, shape: HeadShape, target: LanguageModel, dtype: torch.dtype) -> Head:
    """Loads the EAGLE-3 head of a hub id or folder onto the device of its target.

    Raises:
        ModelError: The head's weights cannot be read, or do not fit its configuration.
        PairError: The head was made for another target.
    """
    shown = display_name(name)
    sizes = TargetSizes(target.name, target.width, target.embedding.shape[1], target.layers)
    layers = fitting_layers(shown, shape, sizes)
    known = optional_shapes(shape)
    tensors = read_weights(name, shown, shape.kind, shapes(shape), known, _own_name)
    if EMBEDDING not in tensors and shape.layer.hidden_size != shape.target_width:
        raise ModelError(
            f"{shown} lacks {EMBEDDING} of shape {written(known[EMBEDDING])}, and the target's embedding, of width "
            f"{shape.target_width}, cannot replace it; {AGAIN}"
        )
    tokens = token_ids(shown, tensors, shape.layer.vocab_size)
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


def _own_name(there: str) -> str | None:
    """A weight's name without the saving library's prefix; None if the weight is not used."""
    key = there.removeprefix("model.").replace("midlayer.", f"{LAYER}.")
    return None if UNUSED.search(key) else key

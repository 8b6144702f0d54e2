"""Reads the weights of EAGLE-3 heads; see `decoder.models.head_weights`."""

import re

import torch

from decoder.forward.language_model import LanguageModel
from decoder.heads.eagle3 import Head, HeadShape
from decoder.models.checkpoints import display_name
from decoder.models.head_weights import EMBEDDING, TargetSizes, filled, fitting_layers, read_tensors

UNUSED = re.compile(r"(^verifier_(norm|lm_head)\.weight|^t2d|rotary_emb\.inv_freq)$")
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
    tensors = read_tensors(name, shown, _own_name)
    if shape.layer.hidden_size == shape.target_width:
        tensors.setdefault(EMBEDDING, target.embedding)
    with torch.device("meta"):
        head = Head(shown, shape, layers)
    return filled(head, tensors, target.device, dtype)


def _own_name(there: str) -> str | None:
    """A weight's name without the saving library's prefix; None if the weight is not used."""
    key = there.removeprefix("model.").replace("midlayer.", "layers.0.")
    return None if UNUSED.search(key) else key

"""Reads the weights of DFlash heads; see `decoder.models.head_weights`.

If the file has no embedding or no output head, the target's embedding or output head is used.
"""

import re

import torch
from torch import Tensor

from decoder.errors import ModelError, PairError
from decoder.forward.language_model import LanguageModel
from decoder.heads.dflash import BlockHead
from decoder.heads.dflash_shape import BlockShape
from decoder.models.checkpoints import display_name
from decoder.models.head_config import REMEDY
from decoder.models.head_weights import EMBEDDING, TargetSizes, filled, fitting_layers, read_tensors
from decoder.models.known_checkpoint import content_of

OUTPUT = "lm_head.weight"
PREDICTED_MASK = "mask_embedding.pt"
"""A pickled file with the embedding of the mask token."""
UNUSED = re.compile(
    r"^(verifier_(norm|lm_head)\.weight|confidence_head\.proj\.(weight|bias)|t2d|rotary_emb\.inv_freq)$"
)
"""Pattern of the names of unused tensors in published files; trees grow by probabilities, so no confidence head is
needed.
"""


def load_block_head(name: str, shape: BlockShape, target: LanguageModel, dtype: torch.dtype) -> BlockHead:
    """Loads the DFlash head of a hub id or folder onto the device of its target.

    Raises:
        ModelError: The head's weights cannot be read, or do not fit its configuration.
        PairError: The head was made for another target.
    """
    shown = display_name(name)
    sizes = TargetSizes(target.name, target.width, target.embedding.shape[1], target.layers)
    layers = fitting_layers(shown, shape, sizes)
    if content_of(name, PREDICTED_MASK) is not None:
        raise ModelError(f"{shown} has a file {PREDICTED_MASK}, but pickled files are not opened; {REMEDY}")
    tensors = read_tensors(name, shown, _own_name)
    tensors.setdefault(EMBEDDING, target.embedding)
    if OUTPUT not in tensors and shape.draft_vocabulary == shape.layer.vocab_size:
        tensors[OUTPUT] = _output_of(shown, target)
    with torch.device("meta"):
        head = BlockHead(shown, shape, layers)
    return filled(head, tensors, target.device, dtype)


def _output_of(shown: str, target: LanguageModel) -> Tensor:
    """The target's output head; raises PairError if it is quantised."""
    rows = target.output_head
    if not rows.is_floating_point():
        raise PairError(
            f"{shown} has no output head of its own, and the output head of {target.name} is quantised; choose a "
            "target with an output head that is not quantised, or another --draft"
        )
    return rows


def _own_name(there: str) -> str | None:
    """A weight's name without the saving library's prefix and suffix; None if the weight is not used."""
    key = there.removeprefix("model.")
    return None if UNUSED.search(key) else key.replace("_codebook.weight", "_codebook")

"""Configuration and loading of all kinds of drafting heads, and the kind of a draft from its name. Independent of how
heads draft.
"""

import re

import torch
from torch import Tensor

from decoder.errors import ConfigError, ModelError, PairError
from decoder.events import HeadKind
from decoder.forward.language_model import LanguageModel
from decoder.heads.dflash import BlockHead
from decoder.heads.dflash_shape import BlockShape
from decoder.heads.eagle3 import Head, HeadShape
from decoder.heads.parts import StatesReader
from decoder.models.checkpoint_files import content_of
from decoder.models.checkpoints import display_name
from decoder.models.dflash_config import block_shape
from decoder.models.head_config import REMEDY, config_of, shape_of
from decoder.models.head_weights import TargetSizes, filled, fitting_layers, read_tensors
from decoder.models.mtp import MtpShape, load_mtp
from decoder.models.names import LOOKUP, MTP, require_model

AnyShape = HeadShape | BlockShape | MtpShape
EMBEDDING, OUTPUT = "embed_tokens.weight", "lm_head.weight"
PREDICTED_MASK = "mask_embedding.pt"
"""Pickled embedding of a DFlash head's mask token."""
UNUSED = re.compile(
    r"(^verifier_(norm|lm_head)\.weight|^confidence_head\.proj\.(weight|bias)|^t2d|rotary_emb\.inv_freq)$"
)
"""Unused tensors in published files; trees grow by probabilities, so no confidence head is needed."""


def head_shape(name: str) -> AnyShape | None:
    """Configuration of the head in a hub id or folder, or of the target's MTP layer if the name is "mtp"; None if the
    checkpoint is not a head. Raises ModelError for an invalid configuration.
    """
    if name == MTP:
        return MtpShape()
    shown, config = display_name(name), config_of(name)
    return shape_of(shown, config) or block_shape(shown, config)


def load_head(name: str, shape: AnyShape, target: LanguageModel, dtype: torch.dtype) -> StatesReader:
    """Loads the head of a hub id or folder onto the device of its target. For an MTP layer, `name` is the target's hub
    id or folder. If the files have no embedding or no output head, the target's is used.

    Raises:
        ConfigError: The MTP layer is not supported; see `load_mtp`.
        ModelError: The head's weights cannot be read, or do not fit its configuration.
        PairError: The head was made for another target.
    """
    if isinstance(shape, MtpShape):
        return load_mtp(name, target, dtype)
    shown = display_name(name)
    layers = fitting_layers(
        shown, shape, TargetSizes(target.name, target.width, target.embedding.shape[1], target.layers)
    )
    if isinstance(shape, BlockShape) and content_of(name, PREDICTED_MASK) is not None:
        raise ModelError(f"{shown} has a file {PREDICTED_MASK}, but pickled files are not opened; {REMEDY}")
    tensors = read_tensors(name, shown, _own_name)
    if shape.layer.hidden_size == shape.target_width:
        tensors.setdefault(EMBEDDING, target.embedding)
    blocks = isinstance(shape, BlockShape)
    if blocks and OUTPUT not in tensors and shape.draft_vocabulary == shape.layer.vocab_size:
        tensors[OUTPUT] = _output_of(shown, target)
    with torch.device("meta"):
        head = BlockHead(shown, shape, layers) if isinstance(shape, BlockShape) else Head(shown, shape, layers)
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
    key = there.removeprefix("model.").replace("midlayer.", "layers.0.")
    return None if UNUSED.search(key) else key.replace("_codebook.weight", "_codebook")


def kind_of(head: StatesReader) -> HeadKind:
    if isinstance(head, BlockHead):
        return "dflash"
    return "mtp" if head.name == MTP else "eagle3"


def is_model_free(draft: str | None) -> bool:
    """Whether the named draft is suffix lookup or a drafting head; None stands for the embedded draft.

    Raises ModelError for a head with an invalid configuration.
    """
    return draft == LOOKUP or (draft is not None and head_shape(draft) is not None)


def require_whole_draft(user: str, target: str | None, draft: str | None) -> None:
    """Raises ConfigError unless the draft is a whole model, which the option or method `user` needs."""
    require_model(user, target, draft)
    if draft is not None and (head := head_shape(draft)):
        raise ConfigError(
            f"{user} needs a whole model as draft, but {display_name(draft)} is a drafting head ({head.kind}); name a "
            "model with --draft"
        )

"""Configuration and loading of all kinds of drafting heads: networks that draft from the layer states of one target.

Chooses the reader of each kind of published checkpoint; knows nothing of drafting.
"""

import torch

from decoder.forward.language_model import LanguageModel
from decoder.heads.dflash_shape import BlockShape
from decoder.heads.eagle3 import HeadShape
from decoder.heads.protocol import StatesReader
from decoder.models.dflash.checkpoint import load_block_head
from decoder.models.dflash.config import block_shape
from decoder.models.eagle3.checkpoint import load_head as load_eagle3
from decoder.models.eagle3.config import head_shape as eagle3_shape
from decoder.models.mtp import MtpShape, load_mtp
from decoder.models.names import MTP

AnyShape = HeadShape | BlockShape | MtpShape


def head_shape(name: str) -> AnyShape | None:
    """Configuration of the head in a hub id or folder, or of the target's MTP layer if the name is "mtp"; None if the
    checkpoint is not a head.

    Raises:
        ModelError: The head's configuration is invalid.
    """
    return MtpShape() if name == MTP else eagle3_shape(name) or block_shape(name)


def load_head(name: str, shape: AnyShape, target: LanguageModel, dtype: torch.dtype) -> StatesReader:
    """Loads the head of a hub id or folder onto the device of its target. For an MTP layer, `name` is the target's hub
    id or folder.

    Raises:
        ConfigError: The MTP layer is not supported; see `load_mtp`.
        ModelError: The head's weights cannot be read, or do not fit its configuration.
        PairError: The head was made for another target.
    """
    if isinstance(shape, MtpShape):
        return load_mtp(name, target, dtype)
    if isinstance(shape, BlockShape):
        return load_block_head(name, shape, target, dtype)
    return load_eagle3(name, shape, target, dtype)

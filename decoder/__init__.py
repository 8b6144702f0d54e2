"""Lossless, fast speculative decoding with draft trees. Importing this package does not import torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from decoder.version import VERSION

if TYPE_CHECKING:
    from decoder.errors import DecoderError
    from decoder.knobs import bounds
    from decoder.methods.dynatree import DynaTree
    from decoder.methods.fixed import Fixed
    from decoder.methods.linear import Linear
    from decoder.run.config import RunConfig
    from decoder.run.loading import load_pair
    from decoder.run.race import decode
    from decoder.session.steering import Stage, Steering

__version__ = VERSION
__all__ = [
    "DecoderError",
    "DynaTree",
    "Fixed",
    "Linear",
    "RunConfig",
    "Stage",
    "Steering",
    "bounds",
    "decode",
    "load_pair",
]

_HOMES = {
    "DecoderError": "decoder.errors",
    "DynaTree": "decoder.methods.dynatree",
    "Fixed": "decoder.methods.fixed",
    "Linear": "decoder.methods.linear",
    "RunConfig": "decoder.run.config",
    "Stage": "decoder.session.steering",
    "Steering": "decoder.session.steering",
    "bounds": "decoder.knobs",
    "decode": "decoder.run.race",
    "load_pair": "decoder.run.loading",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'decoder' has no attribute {name!r}")

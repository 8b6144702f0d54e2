"""Exact and fast speculative decoding with draft trees. Importing this package imports no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decoder.config import DynaTree, Fixed, Linear, RunConfig
    from decoder.models import load_pair
    from decoder.race import decode
    from decoder.steering import Steering

__version__ = "0.1.0"
__all__ = ["DynaTree", "Fixed", "Linear", "RunConfig", "Steering", "decode", "load_pair"]

_HOMES = {
    "DynaTree": "decoder.config",
    "Fixed": "decoder.config",
    "Linear": "decoder.config",
    "RunConfig": "decoder.config",
    "Steering": "decoder.steering",
    "decode": "decoder.race",
    "load_pair": "decoder.models",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'decoder' has no attribute {name!r}")

"""Options and names of the measured pair, and the type of functions that receive progress lines.

This module does not import torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from decoder.models.pair import Pair

Note: TypeAlias = Callable[[str], None]
"""Function that receives one progress line."""


@dataclass(frozen=True, kw_only=True)
class OnPair:
    """Options of the measured pair, which all measurements have."""

    target: str | None = None
    draft: str | None = None
    inflate: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"
    gpu_layers: int | None = None

    @property
    def pair_options(self) -> dict[str, Any]:
        """Keyword arguments of `decoder.run.loading.load_pair`."""
        return {name: getattr(self, name) for name in OnPair.__dataclass_fields__}


class PairRequest(msgspec.Struct, frozen=True, kw_only=True):
    """First fields of every request."""

    target: str
    draft: str
    device: str
    dtype: str
    draft_dtype: str
    seed: int


def differing(one: msgspec.Struct, other: msgspec.Struct) -> list[str]:
    mine, theirs = (msgspec.json.decode(msgspec.json.encode(each)) for each in (one, other))
    return [name for name, value in mine.items() if theirs[name] != value]


def pair_names(pair: "Pair | None") -> dict[str, str]:
    """First fields of a request; empty strings if no pair is loaded."""
    return {
        "target": pair.target_name if pair else "",
        "draft": pair.draft_name if pair else "",
        "device": pair.device if pair else "",
        "dtype": pair.dtype if pair else "",
        "draft_dtype": pair.draft_dtype if pair else "",
    }

"""Options and names of the measured pair, and the type of progress lines. Imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from decoder.models.pair import Pair

Note: TypeAlias = Callable[[str], None]
"""Receives one progress line."""


@dataclass(frozen=True, kw_only=True)
class OnPair:
    """Options of the measured pair, shared by all measurements."""

    target: str | None = None
    draft: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"
    gpu_layers: int | None = None
    """Number of layers of each GGUF file that llama.cpp keeps on a GPU; None: as many as it chooses."""

    @property
    def pair_options(self) -> dict[str, Any]:
        """Keyword arguments of `decoder.run.loading.load_pair`."""
        return {name: getattr(self, name) for name in OnPair.__dataclass_fields__}


def pair_names(pair: "Pair | None") -> dict[str, str]:
    """Names, device and dtypes of a loaded pair; empty strings where none is loaded."""
    return {
        "target": pair.target_name if pair else "",
        "draft": pair.draft_name if pair else "",
        "device": pair.device if pair else "",
        "dtype": pair.dtype if pair else "",
        "draft_dtype": pair.draft_dtype if pair else "",
    }

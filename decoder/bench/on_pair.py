"""The pair that a measurement is of: as it is asked for, and as it is named once it is loaded. Imports no torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decoder.models.pair import Pair


@dataclass(frozen=True, kw_only=True)
class OnPair:
    """What every measurement is asked for with."""

    target: str | None = None
    draft: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"

    @property
    def pair_options(self) -> dict[str, Any]:
        """As `decoder.loading.load_pair` takes them."""
        return {name: getattr(self, name) for name in OnPair.__dataclass_fields__}


def pair_names(pair: "Pair | None") -> dict[str, str]:
    """The same of a loaded pair, which decides what is measured; empty without one."""
    return {
        "target": pair.target_name if pair else "",
        "draft": pair.draft_name if pair else "",
        "device": pair.device if pair else "",
        "dtype": pair.dtype if pair else "",
        "draft_dtype": pair.draft_dtype if pair else "",
    }

"""The one way in which the engine runs a model, and its general implementation: any Hugging Face module.

Others, faster ones for some families, stand beside it (`decoder.forward.families.registry`) and give the same logits.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor


class Rows(Protocol):
    """Keys and values of one model and one text; rows up to `length` belong to the text, the others are drafted."""

    length: int
    """Committed rows."""
    used: int
    """Rows in use; a forward pass appends here."""
    store: Float[Tensor, "L 2 H S D"]
    """What holds them, unused rows included."""

    def keep(self, rows: Sequence[int]) -> None:
        """Commits these rows, in this order, directly after the committed ones and drops all other drafted rows."""

    def reserve(self, capacity: int) -> None:
        """Makes room for `capacity` rows in all, if there is less; what is in use stays."""

    def keys_values(self) -> Float[Tensor, "L 2 H P D"]:
        """The committed rows of all layers, as Hugging Face orders them."""


class Forward(Protocol):
    """What computes logits. A cache is used by the one that made it."""

    def new_cache(self, capacity: int) -> Rows:
        """An empty cache of `capacity` rows."""

    def forward(
        self, cache: Any, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `LanguageModel.forward`."""

    def read(self, cache: Any, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """Appends and commits plain text, and returns the logits after its last token."""

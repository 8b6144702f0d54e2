"""The rows of a text and a tree as they enter some layers of a model: what is kept of its passes for others to read.

Knows no model. Rows are counted as those of the model's KV cache are: what a pass overwrites there it overwrites here.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class LayerStates:
    """Layer states of one text, from the first row that was not taken yet."""

    def __init__(self, layers: Sequence[int]) -> None:
        """Names the layers, rising; layer 0 is entered by the embedded tokens."""
        self.layers = tuple(layers)
        self._taken = 0
        """Rows of the cache before the first that is held."""
        self._held: Float[Tensor, "N Y"] | None = None

    def put(self, first: int, states: Sequence[Float[Tensor, "N X"]]) -> None:
        """Holds the rows of a pass, those of each layer, in place of what was held from cache row `first` on."""
        rows = torch.cat([state.detach() for state in states], -1)
        before = None if self._held is None else self._held[: first - self._taken]
        self._held = rows if before is None else torch.cat([before, rows])

    def take(self, rows: Sequence[int]) -> Float[Tensor, "N Y"]:
        """These rows of what is held, the layers side by side; they become text, and the others are dropped."""
        held, self._held = self._held, None
        assert held is not None, "rows are taken after a pass"  # noqa: S101 - a programmer's mistake
        self._taken += len(rows)
        return held[torch.tensor(rows, device=held.device)]

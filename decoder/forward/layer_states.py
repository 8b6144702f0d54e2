"""Layer states of a model: the hidden rows that enter some of its layers, stored as input of a drafting head.

Knows no model. Rows have the same indices as in the model's KV cache: a pass that overwrites a row of the cache also
overwrites the row here.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class LayerStates:
    """Layer inputs of one text and its tree, without the rows that `take` has already returned."""

    def __init__(self, layers: Sequence[int]) -> None:
        """Stores inputs of these layers, given as ascending numbers; layer 0's input is the embedded tokens.

        For a model of L layers, number L stands for the input of the output head: the rows after the final norm.
        """
        self.layers = tuple(layers)
        self._taken = 0
        """Number of rows that `take` has returned, which is the KV cache index of the first row stored here."""
        self._held: Float[Tensor, "N Y"] | None = None

    def put(self, first: int, states: Sequence[Float[Tensor, "N X"]]) -> None:
        """Stores the rows of a pass, one tensor per layer. They replace the rows that were stored for cache row `first`
        and for all later cache rows.
        """
        rows = torch.cat([state.detach() for state in states], -1)
        before = None if self._held is None else self._held[: first - self._taken]
        self._held = rows if before is None else torch.cat([before, rows])

    def take(self, rows: Sequence[int]) -> Float[Tensor, "N Y"]:
        """Returns the rows with these indices, counted from the first stored row, with layers concatenated. The
        returned rows now belong to the text; all other stored rows are dropped.
        """
        states, self._held = self._held, None
        assert states is not None, "rows can be taken only after a pass"  # noqa: S101 - a programmer's mistake
        self._taken += len(rows)
        return states[torch.tensor(rows, device=states.device)]

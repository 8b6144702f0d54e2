"""Hidden rows (hidden states, one row per token) that passes keep: inputs of some layers for a drafting head, and rows
after the last layer for predictors of acceptance. The bits of logits are unchanged.

Every pass computes these rows anyway, so keeping them costs at most a copy. Independent of the code that reads them.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.errors import PairError
from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward, Ints, Mask, Wrapped

Note = Callable[[Tensor, Any, int], object]
"""(input rows of a layer, state of the pass or None in compiled passes, number of the layer) -> ignored result."""


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
        """Stores layer inputs of the cache rows from `first` on; drops inputs stored earlier for these cache rows."""
        rows = torch.cat([state.detach() for state in states], -1)
        before = None if self._held is None else self._held[: first - self._taken]
        self._held = rows if before is None else torch.cat([before, rows])

    def take(self, rows: Sequence[int]) -> Float[Tensor, "N Y"]:
        """Returns the accepted rows, given as indices among the stored rows; all stored rows are dropped."""
        states, self._held = self._held, None
        assert states is not None, "rows can be taken only after a pass"  # noqa: S101 - a programmer's mistake
        self._taken += len(rows)
        return states[torch.tensor(rows, device=states.device)]


@runtime_checkable
class Tappable(Protocol):
    """A `Forward` that can make a variant of itself; the passes of the variant write layer inputs to `states`."""

    def tapped(self, states: LayerStates) -> Forward: ...


def tapped(forward: Forward, states: LayerStates) -> Forward:
    """A variant of the form that writes layer inputs to `states`. Raises PairError if the form cannot."""
    if isinstance(forward, Tappable):
        return forward.tapped(states)
    raise PairError(
        "the target's forward form gives no access to the layer inputs that a drafting head needs; "
        "give a whole model as --draft"
    )


class ByHidden(Forward):
    """A form that gives access to its hidden rows."""

    @abstractmethod
    def with_hidden(
        self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, first_logits: int = 0
    ) -> tuple[Float[Tensor, "N X"], Float[Tensor, "M V"]]:
        """Rows after all layers and before the last norm, and logits of the rows from `first_logits` on."""

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        return self.with_hidden(cache, tokens, positions, visible)[1]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        positions = range(cache.length, cache.length + len(tokens))
        visible = np.tri(len(tokens), dtype=np.bool_)
        logits = self.with_hidden(cache, tokens, positions, visible, len(tokens) - 1)[1]
        cache.keep(positions)
        return logits[0]


class Native(ByHidden):
    """A native model, which gives access to the inputs of its layers."""

    embedding: Float[Tensor, "V X"]
    """Input embedding: one row per token id."""

    @abstractmethod
    def noting(self, notes: Mapping[int, Note]) -> Forward:
        """The same model, whose passes call `notes[number]` for the layer of this number; logits have the same bits."""

    def tapped(self, states: LayerStates) -> Forward:
        return _Tapped(self, states)


class _Tapped(Wrapped):
    """A native model that writes the inputs of some layers to a `LayerStates` in every pass."""

    def __init__(self, model: Native, states: LayerStates) -> None:
        self._entered: list[Tensor] = []
        """Inputs of the tapped layers, collected during the current pass."""
        self._states = states
        # Cloned, since a layer may overwrite its input rows.
        self.inner = model.noting(dict.fromkeys(states.layers, lambda rows, *_: self._entered.append(rows.clone())))

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        return self._noted(cache.used, self.inner.forward(cache, tokens, positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        return self._noted(cache.used, self.inner.read(cache, tokens))

    def _noted(self, first: int, logits: Tensor) -> Tensor:
        self._states.put(first, self._entered)
        self._entered.clear()
        return logits


class Observed(ByHidden):
    """A native model that keeps the hidden rows of its latest pass."""

    def __init__(self, model: Native) -> None:
        self.latest: Float[Tensor, "N X"] = model.embedding[:0]
        """Hidden rows of the latest pass; if a text was read in chunks, only the rows of the last chunk."""
        self._model = model

    @property
    def width(self) -> int:
        return self._model.embedding.shape[1]

    def new_cache(self, capacity: int) -> KvCache:
        return self._model.new_cache(capacity)

    def with_hidden(
        self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, first_logits: int = 0
    ) -> tuple[Float[Tensor, "N X"], Float[Tensor, "M V"]]:
        self.latest, logits = self._model.with_hidden(cache, tokens, positions, visible, first_logits)
        return self.latest, logits

"""Forward forms that write their layer inputs to `LayerStates` in every pass; the bits of logits are unchanged.

Every pass computes its layer inputs anyway, so keeping them costs only a copy. Does not know which code reads them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.errors import PairError
from decoder.forward.batch_invariant.pass_sizes import Exact
from decoder.forward.families.model import Note
from decoder.forward.kv_cache import KvCache
from decoder.forward.layer_states import LayerStates
from decoder.forward.protocol import Forward


@runtime_checkable
class Tappable(Protocol):
    """A `Forward` that can make a variant of itself; the passes of the variant write layer states."""

    def tapped(self, states: LayerStates) -> Forward:
        """A variant of this form whose passes write layer inputs to `states`."""


def tapped(forward: Forward, states: LayerStates) -> Forward:
    """A variant of a form whose passes write the inputs of some layers to `states`.

    Raises:
        PairError: The form gives no access to its layer inputs.
    """
    if isinstance(forward, Exact):
        # The inner form also writes padding rows; the next pass overwrites them.
        return replace(forward, inner=tapped(forward.inner, states))
    if isinstance(forward, Tappable):
        return forward.tapped(states)
    raise PairError(
        "the target's forward form gives no access to the layer inputs that a drafting head needs; "
        "give a whole model as --draft"
    )


class Noting(Protocol):
    """A native model that can call functions with the inputs of its layers."""

    def noting(self, notes: Mapping[int, Note]) -> Forward:
        """See `NativeModel.noting`."""


class TappedNative:
    """A native model as a `Forward` that writes layer states in every pass."""

    def __init__(self, model: Noting, states: LayerStates) -> None:
        self._entered: list[Tensor] = []
        """Inputs of the tapped layers, collected during the current pass."""
        self._states = states
        # Cloned, since a layer may overwrite its input rows.
        self._model = model.noting(dict.fromkeys(states.layers, lambda rows, *_: self._entered.append(rows.clone())))

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return self._model.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        first = cache.used
        logits = self._model.forward(cache, tokens, positions, visible)
        self._leave(first)
        return logits

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        first = cache.used
        logits = self._model.read(cache, tokens)
        self._leave(first)
        return logits

    def _leave(self, first: int) -> None:
        self._states.put(first, self._entered)
        self._entered.clear()

"""Drafting heads in CUDA graphs: a target whose passes also store its layer states, and a head that reads them.

A row's states are stored at the index of the row's cache slot in the target; the commit moves the states of the
accepted path together with its keys and values. A head's row for the token at position p has the position and the cache
slot p - 1, as on the host (`decoder.draft.head_passes`). This module is independent of growth rules and acceptance.
"""

from functools import partial

from jaxtyping import Float, Int
from torch import Tensor

from decoder.forward.families.model import LayerSlots, Pass
from decoder.forward.families.native import NativeModel
from decoder.heads.eagle3 import StaticHead
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import DraftPart, LevelPasses, Part
from decoder.session.cuda_graph.static_shapes import HEAD_ROWS


class TappedTarget(DraftPart):
    """A target whose passes also store the inputs of the layers that a head reads."""

    def __init__(
        self,
        forward: NativeModel,
        store: Float[Tensor, "L 2 H S D"],
        vocabulary: int,
        context: int,
        layers: tuple[int, ...],
    ) -> None:
        super().__init__(forward, store, vocabulary, context)
        self.states: Float[Tensor, "S Y"] = store.new_zeros((store.shape[3], len(layers) * forward.width))
        """Inputs of these layers, concatenated, for each cache slot."""
        columns = self.states.split(forward.width, 1)
        self._tapped = forward.noting(
            {number: partial(_put, each) for number, each in zip(layers, columns, strict=True)}
        )

    def rotated_logits(
        self, tokens: Int[Tensor, "N"], rotation: Tensor, slots: Int[Tensor, "N"], bias: Float[Tensor, "N M"]
    ) -> Float[Tensor, "N V"]:
        return self._tapped.computed(self.store, tokens, rotation, slots, bias)

    def move(self, sources: Int[Tensor, "D"], places: Int[Tensor, "D"]) -> None:
        super().move(sources, places)
        self.states.index_copy_(0, places, self.states.index_select(0, sources))


def _put(columns: Float[Tensor, "S X"], rows: Float[Tensor, "N X"], given: Pass, index: int) -> None:
    """A `Note` that stores a layer's input rows at the slots of their keys and values."""
    place = given.new[index]
    assert isinstance(place, LayerSlots), "static passes write to slots"  # noqa: S101 - a programmer's mistake
    columns.index_copy_(0, place.slots, rows)


class HeadPart(Part):
    """A head's part of a `GraphSlot`. Drafted rows are dropped after each round; the rows of accepted nodes are
    computed again from the target's states.
    """

    first = HEAD_ROWS
    lag = 1

    def __init__(
        self,
        forward: StaticHead,
        store: Float[Tensor, "L 2 H S D"],
        vocabulary: int,
        context: int,
        states: Float[Tensor, "S Y"],
    ) -> None:
        super().__init__(store, vocabulary, context)
        self.forward = forward
        self.states = states

    def read(self, state: DeviceState, places: Int[Tensor, "N"], rows: slice, bias: Float[Tensor, "N M"]) -> None:
        hidden = self.forward.head.fused(self.states[rows])
        tokens = state.text[self.lag :][rows]
        self.forward.outputs(self.store, tokens, hidden, self.forward.rotation(places), places, bias)

    def unread(self, committed: int) -> int:
        """All committed tokens, since a head reads accepted nodes again, with the target's states."""
        return committed

    def move(self, sources: Int[Tensor, "D"], places: Int[Tensor, "D"]) -> None:
        """Nothing moves: drafted rows are dropped."""

    def passes(self, places: Int[Tensor, "R"], slots: Int[Tensor, "R"]) -> LevelPasses:
        """The first rows read the target's states, all other rows read their parents' outputs."""
        form, rotation = self.forward, self.forward.rotation(places)
        hidden = form.head.fused(self.states.index_select(0, places[: self.first]))

        def logits(tokens: Tensor, rows: slice, parents: Tensor | None, bias: Tensor) -> Tensor:
            nonlocal hidden
            given = hidden if parents is None else hidden.index_select(0, parents)
            outputs = form.outputs(self.store, tokens, given, rotation[:, rows], slots[rows], bias)
            if parents is None:
                outputs = outputs[-1:]
            hidden = form.head.carried(outputs)
            return form.head.logits(outputs)

        return logits

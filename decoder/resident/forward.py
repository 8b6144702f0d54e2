"""Forward passes of fixed shape: what is fed, where it goes and what it sees are tensors, so a graph can replay them.

Nothing here decides anything on the host or reads a number back. Keys and values lie in one tensor that the caller
owns; attention reads its first slots, as many as the bias has columns.
"""

from typing import TYPE_CHECKING, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.device import has_room
from decoder.lean import reader
from decoder.lean.packed import HALF
from decoder.lean.weights import Arithmetic
from decoder.resident.layers import DeviceLinear, LeanStatic
from decoder.resident.module import ModuleStatic

if TYPE_CHECKING:
    from decoder.models import LanguageModel


class StaticForward(Protocol):
    """Computes logits of N rows whose keys and values go into given slots."""

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """Keys and values of all layers, zeros: after `empty`, a NaN in a masked slot would poison the output."""

    def rotation(self, store: Float[Tensor, "L 2 H S D"], positions: Int[Tensor, "N"]) -> Tensor:
        """What `computed` needs to know of these positions."""

    def computed(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Tensor,
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        """The logits; the first M slots are read under `bias`, after the new rows were written.

        Args:
            store: Takes the new rows.
            tokens: What the rows are.
            rotation: Of their positions.
            slots: Where they go.
            bias: Added to the scores of what each row looks at.
        """


@torch.no_grad()
def static_forward(model: "LanguageModel") -> StaticForward:
    """The fastest form of a model; the one that needs its weights twice only where there is room for them."""
    module = model.module
    read = reader(module)
    bytes_needed = sum(weight.nbytes for weight in module.parameters())
    if read is None or not has_room(model.device, 2 * bytes_needed):
        return ModuleStatic(model)
    # Norms are folded in float32; what is computed keeps the model's dtype.
    folded = torch.float32 if model.dtype in HALF else model.dtype
    return LeanStatic(read(Arithmetic(folded, model.dtype, DeviceLinear)), model.context)


def visibility(
    start: Int[Tensor, ""], seen: Bool[Tensor, "N M"] | None, slots: int, dtype: torch.dtype
) -> Float[Tensor, "N S"]:
    """The bias of N rows that see all slots before `start` and of the M from there on what `seen` says, if anything.

    Slot 0 is seen by all: it holds text, and a padded row that saw nothing would compute NaN.
    """
    columns = torch.arange(slots, device=start.device)
    visible = ((columns < start) | (columns == 0))[None]
    if seen is not None:
        places = columns - start
        inside = (places >= 0) & (places < seen.shape[1])
        visible = visible | (seen.index_select(1, places.clamp(0, seen.shape[1] - 1)) & inside)
    bias = torch.zeros(visible.shape, dtype=dtype, device=start.device)
    return bias.masked_fill_(~visible, torch.finfo(dtype).min)

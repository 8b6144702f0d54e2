"""Forward passes of fixed shape: what is fed, where it goes and what it sees are tensors, so a graph can replay them.

Nothing here decides anything on the host or reads a number back. Keys and values lie in one tensor that the caller
owns; attention reads its first slots, as many as the bias has columns.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from decoder.device import has_room, without_gradients
from decoder.forward.cpu.packed import HALF
from decoder.forward.families.registry import reader
from decoder.forward.families.weights import Arithmetic, empty, keep
from decoder.forward.static.hf import ModuleStatic
from decoder.forward.static.host_driven import LeanHost
from decoder.forward.static.layers import DeviceLinear, LeanStatic

if TYPE_CHECKING:
    from decoder.forward.language_model import LanguageModel

COPIES = 3
"""Of the largest layer in float32: while it is folded there are two, and what comes of it."""


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


def static_forward(model: "LanguageModel") -> StaticForward:
    """The fastest form of a model beside its module, if there is room for both."""
    lacks = _lacks(model, sum(weight.nbytes for weight in model.module.parameters()))
    return ModuleStatic(model, lacks) if lacks else _read(model, model.module, keep)


def static_in_place(model: "LanguageModel") -> StaticForward:
    """The fastest form of a model, in place of its module where that can be: no more than one layer is held twice.

    The model then runs by that form too, and loads its module again when somebody asks for it.
    """
    if not model.can_load:
        return static_forward(model)
    if lacks := _lacks(model, 0):
        return ModuleStatic(model, lacks)
    form = _read(model, model.release_module(), empty)
    model.run_by(LeanHost(form))
    return form


def _lacks(model: "LanguageModel", more_bytes: int) -> str:
    """Why a model has no lean form here, where so much is needed beside what the reading of one takes; else nothing."""
    module = model.module
    if reader(module) is None:
        return f"{type(module).__name__} has no lean form"
    needed = more_bytes + reading_bytes(module)
    if not has_room(model.device, needed):
        return f"{needed / 2**30:.1f} GiB more memory would be needed to make the lean form of {model.name}"
    return ""


def reading_bytes(module: Any) -> int:
    """More than the memory that reading a module takes at any time, beside the module and what was read."""
    layers = [layer for part in module.modules() if isinstance(part, nn.ModuleList) for layer in part]
    largest = max(sum(map(Tensor.numel, part.parameters())) for part in (*layers, module.get_output_embeddings()))
    bytes_each: int = max(torch.float32.itemsize, module.dtype.itemsize)
    return COPIES * largest * bytes_each


@without_gradients()
def _read(model: "LanguageModel", module: Any, done: Callable[[Any], None]) -> LeanStatic:
    read = reader(module)
    assert read is not None, "a module that has no lean form"  # noqa: S101 - a programmer's mistake
    # Norms are folded in float32; what is computed keeps the model's dtype.
    folded = torch.float32 if model.dtype in HALF else model.dtype
    return LeanStatic(read(Arithmetic(folded, model.dtype, DeviceLinear, done)), model.context)


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

"""Forward passes of fixed shape: tokens, slots and mask are tensors, so that a CUDA graph can replay a pass.

No code of a pass reads values back from the device. Keys and values are stored in one tensor, the store, which the
caller owns; its rows are called slots. If the bias has M columns, attention reads the first M slots.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from jaxtyping import Float, Int
from torch import Tensor

from decoder.errors import PairError
from decoder.forward.families.architecture import ModelWeights
from decoder.forward.families.native import NativeModel
from decoder.forward.families.registry import native_model, only_compiled, reading_bytes, weight_bytes
from decoder.forward.layer_kinds import UNCAPTURED, Windows
from decoder.system.device import has_room, without_gradients

if TYPE_CHECKING:
    from decoder.forward.language_model import LanguageModel


class StaticForward(Protocol):
    """Passes of fixed shape. Attention windows must slide and be longer than trees are deep; see `windowed_by_slot`."""

    @property
    def windows(self) -> Windows: ...

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """A store of zeros; in uninitialised memory, a NaN in a masked slot would make the output NaN."""

    def rotation(self, store: Float[Tensor, "L 2 H S D"], positions: Int[Tensor, "N"]) -> Tensor:
        """Rotations of rows at these positions, to be passed to `computed`."""

    def computed(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Tensor,
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        """Logits of rows whose keys and values go to `slots`; `bias` is added to the scores of the first M slots."""


def static_forward(model: "LanguageModel") -> StaticForward:
    """A native form, beside the model's current form in memory; if this is impossible, a form by the model's module."""
    source = model.hf.source
    lacks = _lacks(model, source, beside=True)
    return _by_module(model, lacks) if lacks or source is None else _read(model, source)


def static_in_place(model: "LanguageModel") -> StaticForward:
    """Like `static_forward`, but if the model's module can be loaded again, a native form replaces the model's current
    form in memory where possible. The native form of a module in memory frees each layer of the module once it is read.
    """
    if isinstance(model.runs_by, NativeModel):
        return model.runs_by
    if not model.hf.reloadable:
        return static_forward(model)
    source = model.hf.source
    lacks = _lacks(model, source, beside=model.hf.loaded is None)
    if lacks or source is None:
        return _by_module(model, lacks)
    if model.hf.loaded is not None:
        module = model.hf.release()
        model.drop_forward()
        source = replace(source, done=lambda layer: empty(module.get_submodule(layer)))
    form = _read(model, source)
    model.run_by(form)
    return form


def _by_module(model: "LanguageModel", lacks: str) -> StaticForward:
    if model.hf.by_paths:
        raise PairError(UNCAPTURED)
    from decoder.forward.static_hf import ModuleStatic  # noqa: PLC0415 - imports transformers, as modules do

    return ModuleStatic(model.hf.module, lacks)


def empty(layer: Any) -> None:
    """Frees the memory of a layer's weights."""
    for weight in layer.parameters():
        weight.data = weight.new_empty(0)


def _lacks(model: "LanguageModel", source: ModelWeights | None, *, beside: bool) -> str:
    """Reason why no native model can be made, with `beside` in memory next to the current form; empty if it can."""
    if source is None or only_compiled(source.architecture):
        weights = " with quantised weights" if model.hf.quantised else ""
        return f"{type(model.hf.module).__name__}{weights} has no native implementation"
    arch = source.architecture
    needed = reading_bytes(arch, model.dtype) + beside * weight_bytes(arch, model.dtype)
    if not has_room(model.device, needed):
        return f"{needed / 2**30:.1f} GiB more memory would be needed to make the native model of {model.name}"
    return ""


@without_gradients()
def _read(model: "LanguageModel", source: ModelWeights) -> NativeModel:
    return native_model(source, model.dtype, model.context)

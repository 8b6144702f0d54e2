"""Time and logits of passes of one static forward form, compared with those of another form of the same model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.static.static_forward import StaticForward
from decoder.session.cuda_graph.relative_time import Share, relative_time
from decoder.session.cuda_graph.slots import BEYOND, GraphSlots, causal_bias, new_store
from decoder.session.cuda_graph.static_shapes import slots
from decoder.system.device import without_gradients

TEXT, LONG_TEXT = 100, 1900
"""Lengths of a short and of a long text before the timed passes, in tokens."""
ROUNDING = 32.0
"""Allowed error of logits, as a multiple of the dtype's epsilon times the largest logit."""
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Arguments of `StaticForward.computed`."""


def example(forward: StaticForward, rows: int, length: int) -> Inputs:
    """A pass of `rows` rows after a text of `length` tokens."""
    store = new_store(forward, slots(length + rows) + BEYOND)
    with without_gradients():
        tokens, positions, places = (torch.arange(rows, device=store.device) for _ in range(3))
        rotation = forward.rotation(store, positions)
        return store, tokens, rotation, places + length, causal_bias(store, rows, length)


@dataclass(frozen=True)
class Comparison:
    share: Share
    """Of the plain form's time."""
    difference: float
    """Largest error of the logits, as a share of the largest logit."""
    allowed: float

    @property
    def right(self) -> bool:
        return self.difference <= self.allowed

    @property
    def pays(self) -> bool:
        return self.right and self.share.pays

    def __str__(self) -> str:
        if not self.right:
            return f"not kept, since its logits differ from uncompiled ones by {self.difference:.1%}"
        kept = "kept" if self.pays else "not kept"
        return f"takes {self.share.median:.2f} x the time of uncompiled passes, so it is {kept}"


def compared(
    plain: StaticForward, form: StaticForward, sizes: Sequence[int], graph_slots: GraphSlots, text: int = TEXT
) -> Comparison:
    """Compares another form of a model with its plain form, in passes of these sizes after a text of `text` tokens."""
    # Both forms write the same keys and values to the same slots, so one store is enough.
    inputs = [example(plain, rows, text) for rows in sizes]
    both = [_Passes(model_form, inputs) for model_form in (plain, form)]
    device = both[0].logits[0].device
    with without_gradients():
        plain_work, other_work = (graph_slots.repeatable(passes, device) for passes in both)
        share = relative_time(other_work, plain_work, device)
    plain_logits, other_logits = both[0].logits, both[1].logits
    return Comparison(
        share=share,
        difference=max(_difference(*logits) for logits in zip(plain_logits, other_logits, strict=True)),
        # Logits may have a wider dtype than the passes.
        allowed=ROUNDING * torch.finfo(inputs[0][0].dtype).eps,
    )


def _difference(plain_logits: Tensor, other_logits: Tensor) -> float:
    largest = plain_logits.double().abs().max().clamp(min=1e-30)
    return float((plain_logits.double() - other_logits.double()).abs().max() / largest)


class _Passes:
    """Runs several passes one after the other; their logits stay on the device."""

    def __init__(self, forward: StaticForward, inputs: Sequence[Inputs]) -> None:
        self._forward, self._inputs = forward, inputs
        with without_gradients():
            self.logits: list[Float[Tensor, "N V"]] = [forward.computed(*given).clone() for given in inputs]

    def __call__(self) -> None:
        for given, logits in zip(self._inputs, self.logits, strict=True):
            logits.copy_(self._forward.computed(*given))

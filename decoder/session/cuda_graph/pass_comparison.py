"""Comparison of two forms of the same work: the ratio of their times, and the logits of two static forms of a model."""

from collections.abc import Sequence
from statistics import quantiles
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.static_forward import StaticForward
from decoder.session.cuda_graph.slots import BEYOND, GraphSlots, Work, causal_bias, new_store
from decoder.session.cuda_graph.static_shapes import slots
from decoder.system.device import Mark, without_gradients

PAYS = 0.97
"""The tested form is used if it takes less than this share of the plain form's time."""
REPEATS = 32
"""Number of measured ratios. The true median is between the quartiles of this many ratios with a probability of more
than 99 %, whatever the distribution of the times.
"""
TEXT, LONG_TEXT = 100, 1900
"""Lengths of a short and of a long text before the timed passes, in tokens."""
ROUNDING = 32.0
"""Allowed error of logits, as a multiple of the dtype's epsilon times the largest logit."""
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Arguments of `StaticForward.computed`."""


class Share(NamedTuple):
    """Quartiles of the ratio of the time of tested work to the time of plain work."""

    low: float
    median: float
    high: float

    @property
    def pays(self) -> bool:
        return self.high < PAYS

    @property
    def costs(self) -> bool:
        return self.low > 1 / PAYS


def relative_time(work: Work, plain: Work, device: torch.device) -> Share:
    ratios: list[float] = []
    for _ in range(REPEATS):
        plain_s, work_s = _seconds(plain, device), _seconds(work, device)
        ratios.append(work_s / plain_s)
    return Share(*quantiles(ratios, n=4))


def _seconds(work: Work, device: torch.device) -> float:
    begun = Mark(device)
    work()
    end = Mark(device)
    end.wait()
    return end.seconds_since(begun)


def example(forward: StaticForward, rows: int, length: int) -> Inputs:
    """Inputs of a pass of `rows` rows after a text of `length` tokens."""
    store = new_store(forward, slots(length + rows) + BEYOND)
    with without_gradients():
        tokens, positions, places = (torch.arange(rows, device=store.device) for _ in range(3))
        rotation = forward.rotation(store, positions)
        return store, tokens, rotation, places + length, causal_bias(store, rows, length)


@without_gradients()
def compared(
    plain: StaticForward, form: StaticForward, sizes: Sequence[int], graph_slots: GraphSlots, text: int = TEXT
) -> Share | None:
    """Time of passes of `sizes` rows after `text` tokens by the tested `form` of a model, as a share of the plain
    form's time; None if the logits of both forms differ by more than rounding.
    """
    # Both forms write the same keys and values to the same slots, so one store is enough.
    inputs = [example(plain, rows, text) for rows in sizes]
    device, dtype = inputs[0][0].device, inputs[0][0].dtype
    (work, found), (plain_work, expected) = (_passes(each, inputs) for each in (form, plain))
    share = relative_time(graph_slots.repeatable(work, device), graph_slots.repeatable(plain_work, device), device)
    # The store has the dtype of the passes; logits may have a wider dtype.
    allowed = ROUNDING * torch.finfo(dtype).eps
    return share if all(_difference(*both) <= allowed for both in zip(found, expected, strict=True)) else None


def _passes(form: StaticForward, inputs: Sequence[Inputs]) -> tuple[Work, list[Float[Tensor, "N V"]]]:
    """Work that runs several passes one after the other, and the tensors to which it writes their logits."""
    outputs = [form.computed(*given).clone() for given in inputs]

    def work() -> None:
        for given, logits in zip(inputs, outputs, strict=True):
            logits.copy_(form.computed(*given))

    return work, outputs


def _difference(found: Tensor, expected: Tensor) -> float:
    """Largest difference of logits, as a share of the largest expected logit."""
    largest = expected.double().abs().max().clamp(min=1e-30)
    return float((found.double() - expected.double()).abs().max() / largest)

"""Comparison of two static forms of a model: the logits of their passes, and the ratio of their times with a confidence
interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.static.static_forward import StaticForward
from decoder.session.cuda_graph.slots import BEYOND, GraphSlots, Work, causal_bias, new_store
from decoder.session.cuda_graph.static_shapes import slots
from decoder.system.device import Mark, without_gradients

PAYS = 0.97
"""The tested form is used if it takes less than this share of the plain form's time."""
LEAST, MOST, AT_ONCE = 12, 60, 4
"""Least and largest number of repeats, and number of repeats between two checks of the interval."""
DOUBT = 0.01
"""Probability that the interval does not contain the true median."""


@dataclass(frozen=True)
class Share:
    """Median ratio of the time of tested work to the time of plain work, and the median's confidence interval."""

    low: float
    median: float
    high: float

    @property
    def pays(self) -> bool:
        return self.high < PAYS

    @property
    def costs(self) -> bool:
        return self.low > 1 / PAYS

    @property
    def decided(self) -> bool:
        """Whether the interval shows that the work is faster, slower, or about as fast: more repeats are not needed."""
        return self.pays or self.costs or (self.low >= PAYS and self.high <= 1 / PAYS)


def relative_time(work: Work, plain: Work, device: torch.device) -> Share:
    ratios: list[float] = []
    while True:
        plain_s, work_s = _seconds(plain, device), _seconds(work, device)
        ratios.append(work_s / plain_s)
        if len(ratios) < LEAST or len(ratios) % AT_ONCE:
            continue
        share = interval(ratios)
        if share.decided or len(ratios) >= MOST:
            return share


def interval(ratios: list[float]) -> Share:
    """Interval of the median by order statistics, which assume no distribution of the times."""
    ordered, rank = sorted(ratios), _rank(len(ratios))
    return Share(ordered[rank], median(ordered), ordered[-1 - rank])


@cache
def _rank(count: int) -> int:
    """Index of the interval's lower end; the number of ratios below the true median has a binomial distribution."""
    outside = 0.0
    for rank in range(count):
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > DOUBT:
            return rank - 1
    return 0


def _seconds(work: Work, device: torch.device) -> float:
    begun = Mark(device)
    work()
    end = Mark(device)
    end.wait()
    return end.seconds_since(begun)


TEXT, LONG_TEXT = 100, 1900
"""Lengths of a short and of a long text before the timed passes, in tokens."""
ROUNDING = 32.0
"""Allowed error of logits, as a multiple of the dtype's epsilon times the largest logit."""
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Arguments of `StaticForward.computed`."""


def example(forward: StaticForward, rows: int, length: int) -> Inputs:
    """Inputs of a pass of `rows` rows after a text of `length` tokens."""
    store = new_store(forward, slots(length + rows) + BEYOND)
    with without_gradients():
        tokens, positions, places = (torch.arange(rows, device=store.device) for _ in range(3))
        rotation = forward.rotation(store, positions)
        return store, tokens, rotation, places + length, causal_bias(store, rows, length)


@dataclass(frozen=True)
class Comparison:
    share: Share
    """Time of the tested form as a share of the plain form's time."""
    difference: float
    """Largest difference between both forms' logits, as a share of the largest logit."""
    allowed: float

    @property
    def right(self) -> bool:
        return self.difference <= self.allowed

    @property
    def pays(self) -> bool:
        return self.right and self.share.pays

    def __str__(self) -> str:
        if not self.right:
            return f"not used, since its logits differ from those of uncompiled passes by {self.difference:.1%}"
        kept = "kept" if self.pays else "not kept"
        return f"takes {self.share.median:.2f} x the time of uncompiled passes, so it is {kept}"


def compared(
    plain: StaticForward, form: StaticForward, sizes: Sequence[int], graph_slots: GraphSlots, text: int = TEXT
) -> Comparison:
    """Compares the tested `form` of a model with its plain form, in passes of `sizes` rows after `text` tokens."""
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
        # The store has the dtype of the passes; logits may have a wider dtype.
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

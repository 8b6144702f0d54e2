"""Truncation by top-k and top-p of many rows at once, by operations that a CUDA graph can capture. Knows no positions.

A row is sorted in the dtype of its logits, so in half precision the sort takes half the passes. No faster exact way
is known that consists of torch's operations. A search for the threshold needs a sum over the row for each of 16 or 32
bits. A search of several bits at once needs histograms of probabilities and then the rank of each equal logit: more
than 25 operations, whose small kernels take as long as the sort. A fixed number of best tokens can contain less than
the share of top-p. One kernel can search several bits at once: see `kernels/searched_truncation.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Truncation(Protocol):
    """What `decoder.sampling.truncation.truncation_mask` keeps, for rows under known settings."""

    def row(self, index: int) -> "Truncation":
        """Truncation by the settings of one row."""

    def excluded(self, logits: Float[Tensor, "N V"]) -> Bool[Tensor, "N V"]:
        """Mask of the excluded tokens; of equally probable ones, those with higher ids first."""


Truncating: TypeAlias = Callable[[Float[Tensor, "N 3"], int], Truncation]
"""(settings, vocabulary) -> truncation of one row or of as many rows as the logits. The columns are `temperature`,
`ranks` and `share` of a `Sampling`, in float64.
"""


@dataclass(frozen=True)
class DeviceTruncation:
    """Sorts the logits. All tensors have one row, or as many rows as the logits."""

    temperature: Float[Tensor, "N 1"]
    outside: Float[Tensor, "N V"]
    """By rank, from 0: 0 within top-k, else minus infinity."""
    limits: Float[Tensor, "N V-1"]
    """By rank, from 1: a token is excluded if the tokens before it have this probability or more."""

    @classmethod
    def of(cls, settings: Float[Tensor, "N 3"], vocabulary: int) -> "DeviceTruncation":
        temperature, ranks, share = settings[:, :, None].unbind(1)
        outside = torch.arange(vocabulary, device=settings.device) >= ranks
        no_bias = torch.zeros_like(temperature)
        return cls(temperature, no_bias.masked_fill(outside, -torch.inf), share.masked_fill(outside[:, 1:], -1.0))

    def row(self, index: int) -> "DeviceTruncation":
        one = slice(index, index + 1)
        return DeviceTruncation(self.temperature[one], self.outside[one], self.limits[one])

    def excluded(self, logits: Float[Tensor, "N V"]) -> Bool[Tensor, "N V"]:
        ranked, order = logits.sort(dim=-1, descending=True, stable=True)
        upto = torch.addcdiv(self.outside, ranked, self.temperature).softmax(-1).cumsum(-1)
        mask = torch.zeros_like(logits, dtype=torch.bool)
        return mask.scatter_(-1, order[:, 1:], upto[:, :-1] >= self.limits)

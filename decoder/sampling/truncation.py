"""Truncation by top-k and top-p, on the host or for many rows in a CUDA graph, and sampling distributions of rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.sampling.settings import Sampling


class Truncation(Protocol):
    """Truncation of rows under known settings; it keeps the same tokens as `truncation_mask`."""

    def row(self, index: int) -> "Truncation":
        """Truncation by the settings of one row."""

    def excluded(self, logits: Float[Tensor, "N V"]) -> Bool[Tensor, "N V"]:
        """Mask of the excluded tokens; of equally probable tokens, those with higher ids are excluded first."""


Truncating: TypeAlias = Callable[[Float[Tensor, "N 3"], int], Truncation]
"""(settings, vocabulary size) -> truncation. Settings have one row, or as many rows as the logits; their columns are
`temperature`, `ranks` and `share` of a `Sampling`, in float64.
"""


@dataclass(frozen=True)
class DeviceTruncation:
    """Truncation by a sort of the logits. All tensors have one row, or as many rows as the logits."""

    temperature: Float[Tensor, "N 1"]
    outside: Float[Tensor, "N V"]
    """Bias of each rank, from rank 0: 0 within top-k, else minus infinity."""
    limits: Float[Tensor, "N V-1"]
    """Limit of each rank, from rank 1: a token is excluded if the tokens before it reach this total probability."""

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


TRUNCATION_PENALTY = 96.0
"""Subtracted from the draft's scores of excluded tokens, so that they rank after all kept tokens but remain possible:
excluded tokens are less probable than kept ones, and two values of the noise differ by at most 41.
"""


def truncation_mask(logits: Float[Tensor, "N V"], sampling: Sampling) -> Bool[Tensor, "N V"]:
    """Mask of the kept tokens. The temperature applies first, then top-k, then top-p within the top-k tokens. Of
    equally probable tokens, those with lower ids are kept first; the most probable token is always kept.
    """
    if logits.device.type == "cpu":
        rows = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        return torch.from_numpy(np.stack([_truncation_mask(row, sampling) for row in rows.numpy()]))
    settings = logits.new_tensor([[sampling.temperature, sampling.ranks, sampling.share]], dtype=torch.float64)
    return ~DeviceTruncation.of(settings, logits.shape[-1]).excluded(logits)


def with_truncation(
    logits: Float[Tensor, "N V"], offsets: Sequence[Float[Tensor, "V"]] | None, settings: Sequence[Sampling]
) -> list[Float[Tensor, "V"]]:
    """The offsets of each row, minus the penalty for tokens that truncation excludes."""
    if offsets is None:
        offsets = [torch.zeros(logits.shape[-1], device=logits.device)] * len(logits)
    return [
        offset - TRUNCATION_PENALTY * ~truncation_mask(row[None].float(), sampling)[0] if sampling.truncates else offset
        for row, offset, sampling in zip(logits, offsets, settings, strict=True)
    ]


def _truncation_mask(logits: NDArray[Any], sampling: Sampling) -> NDArray[np.bool_]:
    """Finds a threshold in the sorted logits, since a sort takes a sixth of the time of an argsort."""
    ranked = np.sort(logits)[::-1]
    with np.errstate(invalid="ignore"):  # a draft's row may have no finite logit; it then has no children
        weights = np.exp((ranked - ranked[0]).astype(np.float64) / sampling.temperature)
    if sampling.top_k:
        weights[sampling.top_k :] = 0
    upto = np.cumsum(weights)
    share = sampling.top_p * upto[-1] if sampling.top_p < 1 else np.inf
    count = min(max(1, int((upto - weights < share).sum())), sampling.top_k or len(logits))
    mask: NDArray[np.bool_] = logits > ranked[count - 1]
    mask[np.flatnonzero(logits == ranked[count - 1])[: count - int(mask.sum())]] = True
    return mask


def best_kept(logits: NDArray[np.float32], scores: NDArray[np.float32], sampling: Sampling) -> int:
    """The token with the largest score among the tokens that truncation keeps; overwrites `scores`. Testing tokens in
    the order of their scores is faster than computing the mask of all tokens.
    """
    weights = np.exp((logits - logits.max()).astype(np.float64) / sampling.temperature)
    whole = weights.sum() if not sampling.top_k else np.sort(weights)[-sampling.top_k :].sum()
    while True:
        best = int(scores.argmax())
        ahead = logits > logits[best]
        ahead[:best] |= logits[:best] == logits[best]
        in_top_k = not sampling.top_k or np.count_nonzero(ahead) < sampling.top_k
        in_top_p = sampling.top_p == 1 or not ahead.any() or weights[ahead].sum() < sampling.top_p * whole
        if in_top_k and in_top_p:
            return best
        scores[best] = -np.inf


LEAST_TEMPERATURE = 1e-3
"""Least temperature by which float32 logits are divided; at lower temperatures, `probabilities` are greedy."""


def probabilities(logits: Float[Tensor, "N V"], settings: Sequence[Sampling]) -> Float[Tensor, "N V"]:
    """Sampling distributions of rows of logits, each under the settings of its row, in float32."""
    if len(set(settings)) > 1:
        parts = zip(logits.split(1), settings, strict=True)
        return torch.cat([_probabilities(row, sampling) for row, sampling in parts])
    return _probabilities(logits, settings[0])


def _probabilities(logits: Float[Tensor, "N V"], sampling: Sampling) -> Float[Tensor, "N V"]:
    rows = logits.float()
    if sampling.temperature < LEAST_TEMPERATURE:
        return torch.zeros_like(rows).scatter_(-1, rows.argmax(-1, keepdim=True), 1.0)
    if sampling.truncates:
        rows = rows.masked_fill(~truncation_mask(rows, sampling), -torch.inf)
    return (rows / sampling.temperature).softmax(-1)

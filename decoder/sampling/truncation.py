"""Truncation on the host: which tokens top-k and top-p keep."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.sampling.device_truncation import DeviceTruncation
from decoder.sampling.settings import Sampling

TRUNCATION_PENALTY = 96.0
"""Subtracted from the draft's scores of truncated tokens, so that they rank after all kept ones but remain possible:
they are less probable, and two values of the noise differ by at most 41.
"""


def truncation_mask(logits: Float[Tensor, "N V"], sampling: Sampling) -> Bool[Tensor, "N V"]:
    """The temperature applies first, then top-k, then top-p within the top-k. Of equally probable tokens, those with
    lower ids are kept first; the most probable one always is.
    """
    if logits.device.type == "cpu":
        rows = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        return torch.from_numpy(np.stack([_truncation_mask(row, sampling) for row in rows.numpy()]))
    settings = logits.new_tensor([[sampling.temperature, sampling.ranks, sampling.share]], dtype=torch.float64)
    return ~DeviceTruncation.of(settings, logits.shape[-1]).excluded(logits)


def with_truncation(
    logits: Float[Tensor, "N V"], offsets: Sequence[Float[Tensor, "V"]], settings: Sequence[Sampling]
) -> list[Float[Tensor, "V"]]:
    """Minus the penalty for the tokens that truncation excludes."""
    return [
        offset - TRUNCATION_PENALTY * ~truncation_mask(row[None].float(), sampling)[0] if sampling.truncates else offset
        for row, offset, sampling in zip(logits, offsets, settings, strict=True)
    ]


def _truncation_mask(logits: NDArray[Any], sampling: Sampling) -> NDArray[np.bool_]:
    """By a threshold in the sorted logits, since a sort takes a sixth of the time of an argsort."""
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
    """The token with the largest score of those that truncation keeps. Testing tokens by descending score is faster
    than the mask of all.
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

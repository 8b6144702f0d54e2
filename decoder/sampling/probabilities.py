"""Sampling distributions: softmax of logits / temperature, truncated and renormalised, with settings for each row."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import truncation_mask

LEAST_TEMPERATURE = 1e-3
"""Least temperature by which float32 logits are divided; below it, decoding is greedy."""


def probabilities(logits: Float[Tensor, "N V"], settings: Sequence[Sampling]) -> Float[Tensor, "N V"]:
    """Of rows of logits under each row's settings, in float32."""
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

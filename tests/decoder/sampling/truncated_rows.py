"""Rows of logits and sampling settings for tests of truncation on a device."""

import torch
from torch import Tensor

from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import Truncating, Truncation, truncation_mask

SETTINGS = [
    Sampling(1.0, top_p=0.95),
    Sampling(0.7, top_p=0.3),
    Sampling(2.0, top_p=0.999),
    Sampling(0.05, top_p=0.9),
    Sampling(1.0, top_p=1e-9),
    Sampling(1.0, 1),
    Sampling(1.3, 50),
    Sampling(0.6, 50, 0.95),
    Sampling(1.0, 10**6, 0.8),
]
HALF_AND_FLOAT = [torch.float16, torch.bfloat16, torch.float32]


def truncation(truncating: Truncating, vocabulary: int, *each: Sampling) -> Truncation:
    """Truncation with one setting for all rows or one for each row."""
    numbers = [[sampling.temperature, sampling.ranks, sampling.share] for sampling in each]
    return truncating(torch.tensor(numbers, dtype=torch.float64), vocabulary)


def kept_by_host(logits: Tensor, *each: Sampling) -> Tensor:
    """What the host keeps of each row with its own setting."""
    return torch.cat([truncation_mask(row[None], sampling) for row, sampling in zip(logits, each, strict=True)])


def rows(vocabulary: int, dtype: torch.dtype) -> Tensor:
    """Rows of usual logits, and rows with ties, without differences, with impossible tokens, and almost flat ones."""
    logits = 3 * torch.randn((6, vocabulary), generator=torch.Generator().manual_seed(vocabulary))
    logits[1] = logits[1].round()
    logits[2] = 0
    logits[3, 1::2] = -torch.inf
    logits[4] /= 100
    logits[5, -1] = 60
    return logits.to(dtype)

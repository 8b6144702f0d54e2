"""Was the first token that differs from plain decoding a tie? Judged in float32, on the same weights.

In bfloat16 and float16 a row's logits depend a little on how many rows are computed together; two tokens whose scores
differ by less than that rounding may change places. Anything else is a bug.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.models import LanguageModel

CHUNK = 512
"""Tokens that go through the model together."""


@dataclass(frozen=True)
class Verdict:
    """What float32 says of two tokens."""

    near_tie: bool
    """Whether their scores differ by at most twice the largest error that the model's own dtype makes in any logit."""
    gap: float
    """The higher of their scores minus the other."""


@torch.inference_mode()
def judged(model: LanguageModel, prefix: Sequence[int], rivals: tuple[int, int], *, by_module: bool = False) -> Verdict:
    """Scores two tokens after `prefix` in float32 and in the model's own dtype.

    Args:
        model: What wrote one of the tokens.
        prefix: The tokens before the two.
        rivals: The two.
        by_module: Whether the Hugging Face module itself wrote the other.
    """
    exact = _by_module(model.module_in_float32(), prefix)
    error = float((_logits(model, prefix) - exact).abs().max())
    if by_module:
        error = max(error, float((_by_module(model.module, prefix) - exact).abs().max()))
    first, second = rivals
    gap = float((exact[-1, first] - exact[-1, second]).abs())
    return Verdict(near_tie=gap <= 2 * error, gap=gap)


def _logits(model: LanguageModel, prefix: Sequence[int]) -> Float[Tensor, "P V"]:
    """After each token, as the engine computes them."""
    cache = model.new_cache(len(prefix))
    parts = []
    for start in range(0, len(prefix), CHUNK):
        part = prefix[start : start + CHUNK]
        positions = range(start, start + len(part))
        parts.append(model.forward(cache, part, positions, np.tri(len(part), dtype=np.bool_)).float())
        cache.keep(positions)
    return torch.cat(parts)


def _by_module(module: Any, prefix: Sequence[int]) -> Float[Tensor, "P V"]:
    ids = torch.tensor([list(prefix)], device=next(module.parameters()).device)
    logits: Tensor = module(input_ids=ids).logits[0].float()
    return logits

"""Was the first token that differs from plain decoding a tie? Judged in float32, on the same weights.

In bfloat16 and float16 a row's logits depend a little on how many rows are computed together; two tokens whose scores
differ by less than that rounding may change places. Anything else is a bug.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from decoder.models import LanguageModel


@dataclass(frozen=True)
class Verdict:
    """What float32 says of two tokens."""

    near_tie: bool
    """Whether their scores differ by at most twice the largest error that the model's own dtype makes in any logit."""
    gap: float
    """The higher of their scores minus the other."""


@torch.inference_mode()
def judged(model: LanguageModel, prefix: Sequence[int], rivals: tuple[int, int]) -> Verdict:
    """Scores two tokens after `prefix` in float32 and in the model's own dtype."""
    exact = _logits(model.in_float32(), prefix)
    error = float((_logits(model, prefix) - exact).abs().max())
    first, second = rivals
    gap = float((exact[-1, first] - exact[-1, second]).abs())
    return Verdict(near_tie=gap <= 2 * error, gap=gap)


def _logits(model: LanguageModel, prefix: Sequence[int]) -> torch.Tensor:
    ids = torch.tensor([list(prefix)], device=model.device)
    logits: torch.Tensor = model.module(input_ids=ids).logits[0].float()
    return logits

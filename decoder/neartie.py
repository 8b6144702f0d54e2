"""Was the first token that differs from plain decoding a tie? Judged in float32, on the same weights.

In bfloat16 and float16 a row's logits depend a little on how many rows are computed together; two tokens whose scores
differ by less than that rounding may change places. Anything else is a bug.
"""

from collections.abc import Sequence

import torch

from decoder.models import LanguageModel


@torch.inference_mode()
def is_near_tie(model: LanguageModel, prefix: Sequence[int], rivals: tuple[int, int]) -> bool:
    """Whether two tokens after `prefix` score alike in float32.

    Alike means: their float32 logits differ by at most twice the largest error that the model's own dtype makes in any
    logit on that prefix.
    """
    exact = _logits(model.in_float32(), prefix)
    error = (_logits(model, prefix) - exact).abs().max()
    first, second = rivals
    return bool((exact[-1, first] - exact[-1, second]).abs() <= 2 * error)


def _logits(model: LanguageModel, prefix: Sequence[int]) -> torch.Tensor:
    ids = torch.tensor([list(prefix)], device=model.device)
    logits: torch.Tensor = model.module(input_ids=ids).logits[0].float()
    return logits

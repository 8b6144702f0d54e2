"""Which logits of a target a token may be chosen from. NaN and plus infinity come from overflow or damaged weights; a
choice among them is arbitrary, so decoding ends there. Minus infinity is a logit of a token that the model excludes.
All this shows in a row's largest logit, which is finite if and only if a token may be chosen: the maximum of a row with
NaN is NaN.
"""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.errors import LogitsError
from decoder.forward.compiled.library import chosen_tokens, in_rows, library
from decoder.sampling.noise import Offsets


def choices(logits: Float[Tensor, "N V"], offsets: Offsets | None = None) -> list[int]:
    """The token of each row with the largest sum of logit and offset, in float32; of equal sums, the lowest id. Raises
    LogitsError if a row has NaN or plus infinity, or no finite logit.
    """
    if logits.device.type == "cpu" and (found := library()):
        tokens = chosen_tokens(found, in_rows(logits), offsets)
        if min(tokens) < 0:
            raise LogitsError
        return tokens
    require_choices(logits)
    scores = logits.float() if offsets is None else logits.float() + torch.stack(list(offsets))
    # On a CPU, numpy's argmax takes a tenth of the time of torch's argmax.
    return (scores.numpy() if scores.device.type == "cpu" else scores).argmax(-1).tolist()


def require_choices(logits: Float[Tensor, "N V"]) -> None:
    """Raises LogitsError as `choices` does; waits for the logits if they are on another device."""
    require_finite(logits.amax(-1).tolist())


def require_finite(largest: Iterable[float]) -> None:
    """The same check by the largest logit of each row; NaN for a row with NaN."""
    if not all(map(math.isfinite, largest)):
        raise LogitsError

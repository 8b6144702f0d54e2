"""Which logits of a target a token may be chosen from.

NaN and plus infinity come from overflow or damaged weights; a choice among them is arbitrary, so decoding ends there.
Minus infinity is a logit of a token that the model excludes: it is never chosen, and the other tokens are unaffected. A
row that excludes all tokens has no choice.

All this shows in a row's largest logit, which is finite if and only if a token may be chosen: the maximum of a row with
NaN is NaN. This module knows neither rounds nor methods.
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
    """The token of each row with the largest sum of logit and offset, in float32; of equal sums, the lowest id.

    Args:
        logits: The target's logits.
        offsets: For each row, numbers that are added to its logits, in float32 on the same device; None: none.

    Raises:
        LogitsError: A row has NaN or plus infinity, or no finite logit.
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
    """Refuses rows of which one leaves no choice; waits for the logits if they are on another device.

    Raises:
        LogitsError: A row has NaN or plus infinity, or no finite logit.
    """
    require_finite(logits.amax(-1).tolist())


def require_finite(largest: Iterable[float]) -> None:
    """The same check by the largest logit of each row; NaN for a row with NaN.

    Raises:
        LogitsError: One of these logits is NaN or infinite.
    """
    if not all(map(math.isfinite, largest)):
        raise LogitsError

"""Which logits of a target a token may be chosen from. NaN and plus infinity come from overflow or damaged weights; a
choice among them is arbitrary, so decoding ends there. Minus infinity is a logit of a token that the model excludes.
All this shows in a row's largest logit, which is finite if and only if a token may be chosen: the maximum of a row with
NaN is NaN.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.errors import LogitsError
from decoder.forward.compiled.library import chosen_tokens, in_rows, kept_token, library
from decoder.sampling.noise import Offsets
from decoder.sampling.settings import Sampling


def choices(logits: Float[Tensor, "N V"], offsets: Offsets | None = None) -> list[int]:
    """The token of each row with the largest sum of logit and offset, in float32; of equal sums, the lowest id. Raises
    LogitsError if a row has NaN or plus infinity, or no finite logit.
    """
    if logits.is_cpu and (found := library()):
        tokens = chosen_tokens(found, in_rows(logits), offsets)
        if min(tokens) < 0:
            raise LogitsError
        return tokens
    require_choices(logits)
    scores = logits.float() if offsets is None else logits.float() + torch.stack(list(offsets))
    # On a CPU, numpy's argmax takes a tenth of the time of torch's argmax.
    return (scores.numpy() if scores.device.type == "cpu" else scores).argmax(-1).tolist()


def kept_choice(
    logits: Float[Tensor, "N V"], offsets: Offsets, truncation: Sequence[Sampling]
) -> Callable[[int], int] | None:
    """Maps the index of a row to its token with the largest sum of logit and offset, of those that truncation keeps.
    Only rows that are asked for are computed, since few are. None without a compiled library for the logits.
    """
    if not logits.is_cpu or not (found := library()):
        return None
    rows = in_rows(logits)
    return lambda row: kept_token(found, rows[row], offsets[row], truncation[row])


def require_choices(logits: Float[Tensor, "N V"]) -> None:
    """Raises LogitsError as `choices` does; waits for the logits if they are on another device."""
    require_finite(logits.amax(-1).tolist())


def require_finite(largest: Iterable[float]) -> None:
    """The same check by the largest logit of each row; NaN for a row with NaN."""
    if not all(map(math.isfinite, largest)):
        raise LogitsError

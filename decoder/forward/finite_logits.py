"""Choice of tokens, only from finite logits. NaN and plus infinity come from overflow or damaged weights and make any
choice arbitrary, so decoding ends there. Minus infinity is the logit of a token that the model excludes. The largest
logit of a row is finite if and only if a token can be chosen, since the maximum of a row with NaN is NaN.
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
    """A function that returns, for the index of a row, the token with the largest sum of logit and offset among the
    tokens that truncation keeps; it computes only this row. None without a compiled library for the logits.
    """
    if not logits.is_cpu or not (found := library()):
        return None
    rows = in_rows(logits)
    return lambda row: kept_token(found, rows[row], offsets[row], truncation[row])


def require_choices(logits: Float[Tensor, "N V"]) -> None:
    """Raises LogitsError as `choices` does; waits for the logits if they are on another device."""
    require_finite(logits.amax(-1).tolist())


def require_finite(largest: Iterable[float]) -> None:
    """Raises LogitsError as `choices` does, given the largest logit of each row: NaN for a row with NaN."""
    if not all(map(math.isfinite, largest)):
        raise LogitsError

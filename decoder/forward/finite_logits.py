"""Chooses tokens from logits. NaN and plus infinity come from overflow or damaged weights and would make a choice
arbitrary, so they raise LogitsError. Minus infinity is the logit of a token that the model excludes. The largest logit
of a row is finite if and only if a token can be chosen, since the maximum of a row with NaN is NaN.
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
    """For each row, the token with the largest sum of logit and offset in float32; if sums are equal, the token with
    the lowest id. Raises LogitsError if a row has NaN or plus infinity, or no finite logit.
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
    """A function that returns, for a row index, the token with the largest sum of logit and offset among the tokens
    that truncation keeps. None if the logits are not on the CPU, or if there is no compiled library.
    """
    if not logits.is_cpu or not (found := library()):
        return None
    rows = in_rows(logits)
    return lambda row: kept_token(found, rows[row], offsets[row], truncation[row])


def require_choices(logits: Float[Tensor, "N V"]) -> None:
    """Raises LogitsError for the same rows as `choices`; synchronises with the device of the logits."""
    require_finite(logits.amax(-1).tolist())


def require_finite(largest: Iterable[float]) -> None:
    """`require_choices` for the largest logit of each row, which is NaN for a row with NaN."""
    if not all(map(math.isfinite, largest)):
        raise LogitsError

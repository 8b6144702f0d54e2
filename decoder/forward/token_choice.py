"""Chooses tokens from logits: the target's choice, and the best tokens for a draft tree, by the compiled library or by
torch.

NaN and plus infinity come from overflow or damaged weights and would make a choice arbitrary, so they raise
LogitsError. Minus infinity is the logit of a token that the model excludes. The largest logit of a row is finite if and
only if a token can be chosen, since the maximum of a row with NaN is NaN.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.errors import LogitsError
from decoder.forward.compiled.library import (
    BestTokens,
    best_tokens,
    chosen_tokens,
    in_rows,
    kept_token,
    library,
    truncated_offsets,
)
from decoder.sampling.noise import Offsets
from decoder.sampling.ranking import Best, Ranking
from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import TRUNCATION_PENALTY


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
    """Raises LogitsError as `require_choices` does, given the largest logit of each row (NaN for a row with NaN)."""
    if not all(map(math.isfinite, largest)):
        raise LogitsError


def ranked(logits: Float[Tensor, "N V"], ranking: Ranking) -> Best:
    """The tokens that `ranking` requests, by the compiled library for logits on a CPU, otherwise by torch."""
    if not logits.is_cpu or not (found := library()):
        return _by_torch(logits, ranking)
    rows, estimate = in_rows(logits), ranking.estimate
    best = BestTokens(len(rows), min(ranking.count, rows.shape[1]), own=ranking.own)
    best.ask(estimate)
    if estimate and estimate.truncation:
        best.set_offsets([*truncated_offsets(found, rows, estimate.offsets, estimate.truncation, TRUNCATION_PENALTY)])
    best_tokens(found, rows, best)
    return best.lists()


def _by_torch(logits: Float[Tensor, "N V"], ranking: Ranking) -> Best:
    scores = ranking.estimate.scores(logits) if ranking.estimate else logits
    logprobs, count = scores.log_softmax(-1, torch.float32), min(ranking.count, logits.shape[-1])
    on_cpu = logprobs.device.type == "cpu"
    tokens, values = _best_on_cpu(logprobs, count) if on_cpu else _best_on_device(logprobs, count)
    if not ranking.own:
        return Best(tokens, values, [[] for _ in tokens])
    own = logits.log_softmax(-1, torch.float32).gather(-1, torch.tensor(tokens).to(logprobs.device))
    return Best(tokens, values, own.tolist())


def _best_on_cpu(logprobs: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    tokens, values = [], []
    for left in logprobs.numpy():
        best, scores = [], []
        for _ in range(count):
            # For a few thousand numbers, numpy's argmax takes a tenth of the time of torch's argmax or of a sort. Of
            # equal values, numpy's argmax returns the lowest id.
            token = int(left.argmax())
            best.append(token)
            scores.append(float(left[token]))
            left[token] = -np.inf
        tokens.append(best)
        values.append(scores)
    return tokens, values


def _best_on_device(logprobs: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    tokens, values = [], []
    for _ in range(count):
        # Of equal values, argmax returns the lowest id; topk does not guarantee this.
        best = logprobs.argmax(-1, keepdim=True)
        tokens.append(best)
        values.append(logprobs.gather(-1, best))
        logprobs = logprobs.scatter(-1, best, -torch.inf)
    ids, scores = torch.stack([torch.cat(tokens, -1).double(), torch.cat(values, -1).double()]).tolist()
    return [[int(token) for token in row] for row in ids], scores

"""The best next tokens of rows of logits, chosen by the compiled library or by torch."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.compiled.library import BestTokens, best_tokens, in_rows, library, truncated_offsets
from decoder.sampling.ranking import Best, Ranking
from decoder.sampling.truncation import TRUNCATION_PENALTY


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

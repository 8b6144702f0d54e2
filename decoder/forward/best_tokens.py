"""The best next tokens of rows of logits, by estimates of the target's probabilities. Independent of trees."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.compiled.library import BestTokens, best_tokens, in_rows, library, truncated_offsets
from decoder.sampling.noise import Estimate
from decoder.sampling.truncation import TRUNCATION_PENALTY


class Best(NamedTuple):
    """One list per row of logits, best token first. Log-probabilities are NaN if the row has NaN or plus infinity, or
    no finite logit.
    """

    tokens: list[list[int]]
    logprobs: list[list[float]]
    own_logprobs: list[list[float]]
    """Log-probabilities by the logits, without the estimate; empty lists if `Ranking.own` is false."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Request for the `count` best next tokens of each row. Log-probabilities are in float32; of equally probable
    tokens, the one with the lower id comes first.
    """

    count: int
    estimate: Estimate | None = None
    own: bool = False

    @property
    def needs_logits(self) -> bool:
        """Whether truncation must read the logits before the ranking, so that a compiled pass cannot do the ranking."""
        return self.estimate is not None and self.estimate.truncation is not None

    def of(self, logits: Float[Tensor, "N V"]) -> Best:
        if not logits.is_cpu or not (found := library()):
            return self._by_torch(logits)
        rows = in_rows(logits)
        best = BestTokens(len(rows), min(self.count, rows.shape[1]), own=self.own)
        best.ask(self.estimate)
        if self.estimate and self.estimate.truncation:
            offsets = self.estimate.offsets
            best.set_offsets([*truncated_offsets(found, rows, offsets, self.estimate.truncation, TRUNCATION_PENALTY)])
        best_tokens(found, rows, best)
        return Best(*best.lists())

    def _by_torch(self, logits: Float[Tensor, "N V"]) -> Best:
        scores = self.estimate.scores(logits) if self.estimate else logits
        logprobs, count = scores.log_softmax(-1, torch.float32), min(self.count, logits.shape[-1])
        on_cpu = logprobs.device.type == "cpu"
        tokens, values = _best_on_cpu(logprobs, count) if on_cpu else _best_on_device(logprobs, count)
        if not self.own:
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

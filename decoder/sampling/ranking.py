"""Ranking of next tokens by a draft model: the request, and its result. Independent of models and trees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from decoder.sampling.noise import Estimate


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


RankingAt: TypeAlias = Callable[[Sequence[int]], Ranking]
"""(text position that each row of logits predicts) -> request for the best tokens of these rows."""

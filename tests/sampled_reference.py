"""Coupled sampling as plainly as it can be written: the reference's oracle with scores under noise.

Noise is computed one number at a time in whole numbers of any size; truncation is that of transformers. Nothing of this
is shared with the engine but its parameter objects.
"""

import math
from dataclasses import dataclass, field
from functools import cache

import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from decoder.sampling.settings import Sampling
from tests.reference import Oracle, Path

GOLDEN = 0x9E3779B97F4A7C15
WORD = 1 << 64
SHARPNESS = 2.0
OUTSIDE = 96.0


def mixed(number: int) -> int:
    """SplitMix64's output function."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) % WORD
    return number ^ (number >> 31)


def uniform(seed: int, position: int, token: int) -> float:
    """Between 0 and 1, neither of them."""
    stream = mixed((mixed((seed + GOLDEN) % WORD) + (position + 1) * GOLDEN) % WORD)
    return ((mixed((stream + (token + 1) * GOLDEN) % WORD) >> 12) + 0.5) / 2**52


def gumbel(seed: int, position: int, token: int) -> float:
    """One number of the noise."""
    return -math.log(-math.log(uniform(seed, position, token)))


@cache
def noise(seed: int, position: int, width: int) -> torch.Tensor:
    """The noise of all tokens at a position, shape (width,)."""
    return torch.tensor([gumbel(seed, position, token) for token in range(width)], dtype=torch.float64)


def kept(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Which tokens transformers would sample from, shape (V,)."""
    ids, scores = torch.zeros((1, 1), dtype=torch.long), logits[None].double()
    scores = TemperatureLogitsWarper(sampling.temperature)(ids, scores)
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(ids, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(ids, scores)
    finite: torch.Tensor = scores[0].isfinite()
    return finite


@dataclass
class SampledOracle(Oracle):
    """Scores under the noise of the position that follows a text."""

    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0

    def target_scores(self, text: Path) -> list[float]:
        """The token of the highest score is the target's choice."""
        logits = self._scores("target", text).float()
        scores = logits.double() + self._noise(text)
        if self.sampling.temperature:
            scores[~kept(logits, self.sampling)] = -math.inf
        found: list[float] = scores.tolist()
        return found

    def draft_logprobs(self, text: Path, drafted: int = 0) -> list[float]:
        """Logarithms of the chances that draft tokens are chosen."""
        logits = self._draft_scores(text, drafted).float()
        scores = logits.double() + self._noise(text)
        if self.sampling.temperature:
            scores[~kept(logits, self.sampling)] -= OUTSIDE
            scores *= SHARPNESS
        found: list[float] = scores.log_softmax(-1).tolist()
        return found

    def _noise(self, text: Path) -> torch.Tensor:
        if not self.sampling.temperature:
            return torch.zeros(self.width, dtype=torch.float64)
        return self.sampling.temperature * noise(self.seed, len(text), self.width)

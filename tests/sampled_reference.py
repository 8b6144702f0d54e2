"""Slow and plain reference of coupled sampling: an oracle whose scores include Gumbel noise.

Noise is computed one number at a time with Python's integers of any size; truncation is that of transformers. Only
parameter objects are shared with the engine.
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
OUTSIDE = 96.0


def mixed(number: int) -> int:
    """SplitMix64's output function."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) % WORD
    return number ^ (number >> 31)


def uniform(seed: int, position: int, token: int) -> float:
    """Uniform number between 0 and 1, both excluded."""
    stream = mixed((mixed((seed + GOLDEN) % WORD) + (position + 1) * GOLDEN) % WORD)
    return ((mixed((stream + (token + 1) * GOLDEN) % WORD) >> 12) + 0.5) / 2**52


def gumbel(seed: int, position: int, token: int) -> float:
    return -math.log(-math.log(uniform(seed, position, token)))


@cache
def noise(seed: int, position: int, width: int) -> torch.Tensor:
    """The noise of all tokens at a position, shape (width,)."""
    return torch.tensor([gumbel(seed, position, token) for token in range(width)], dtype=torch.float64)


def kept(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Mask of the tokens that transformers would sample from, shape (V,)."""
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
    """Oracle whose scores include the noise of the position after the text."""

    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0

    def target_scores(self, text: Path) -> list[float]:
        """Logits with noise; the target chooses the token with the highest score."""
        logits = self._scores("target", text).float()
        scores = logits.double() + self._noise(text)
        if self.sampling.temperature:
            scores[~kept(logits, self.sampling)] = -math.inf
        found: list[float] = scores.tolist()
        return found

    def draft_logprobs(self, text: Path, drafted: int = 0, sharpness: float = 1) -> list[float]:
        """Log-probabilities that tokens are chosen, estimated from the draft's logits with noise."""
        logits = self._draft_scores(text, drafted).float()
        scores = logits.double() + self._noise(text)
        if self.sampling.temperature:
            scores[~kept(logits, self.sampling)] -= OUTSIDE
            sharpness = 1 / (0.25**2 + (0.55 * self.sampling.temperature) ** 2) ** 0.5
        scores *= sharpness
        found: list[float] = scores.log_softmax(-1).tolist()
        return found

    def _noise(self, text: Path) -> torch.Tensor:
        if not self.sampling.temperature:
            return torch.zeros(self.width, dtype=torch.float64)
        return self.sampling.temperature * noise(self.seed, len(text), self.width)

"""The draft's estimate of the target's next token, made with or without knowledge of the target's Gumbel noise."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.sampling.noise import Offsets, TokenNoise
from decoder.sampling.probabilities import LEAST_TEMPERATURE
from decoder.sampling.settings import Schedule
from decoder.sampling.truncation import with_truncation


@dataclass(frozen=True)
class Estimate:
    """Estimated distributions of the target's tokens, by row of the draft's logits: the softmax of (logits + offset) *
    factor.
    """

    factors: Sequence[float]
    offsets: Offsets | None = None
    """On the device of the logits."""

    def scores(self, logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        """In float32."""
        rows = logits.float() if self.offsets is None else logits.float() + torch.stack(list(self.offsets))
        return rows * torch.tensor(self.factors, device=rows.device)[:, None]


class DraftProbabilities:
    """Probabilities by which draft trees grow: the draft's own, at the target's temperature. `GumbelNoise` has those of
    drafts that know the target's noise.
    """

    noisy = False
    """Whether they include the target's noise, and so differ from the draft's own."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def greedy_from(self, position: int) -> bool:
        """Whether decoding is greedy from a position on; if so, the draft's logits stay unchanged."""
        return self._schedule.greedy_from(position)

    def estimate(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Estimate:
        """Of the target's tokens at `positions`, from the draft's logits for these tokens."""
        settings = [self._schedule.at(position) for position in positions]
        factors = [
            1.0 if sampling.greedy else 1 / max(sampling.temperature, LEAST_TEMPERATURE) for sampling in settings
        ]
        if not any(sampling.truncates for sampling in settings):
            return Estimate(factors)
        nothing = torch.zeros(logits.shape[-1], device=logits.device)
        return Estimate(factors, with_truncation(logits, [nothing] * len(settings), settings))

    def noise_from(self, position: int) -> TokenNoise | None:
        """The noise from a position on; None if decoding is greedy there, or if the draft does not know the noise."""
        del position
        return None

"""The draft's estimate of the target's next token, made with or without knowledge of the target's Gumbel noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.sampling.noise import Offsets, TokenNoise
from decoder.sampling.probabilities import LEAST_TEMPERATURE
from decoder.sampling.settings import Schedule
from decoder.sampling.truncation import with_truncation


@dataclass(frozen=True)
class Estimate:
    """Estimated distribution of the target's token for each row of the draft's logits: the softmax of
    (logits + offset) * factor.
    """

    factors: Sequence[float]
    """Factor of each row."""
    offsets: Offsets | None = None
    """Offset of each row, on the device of the logits; None: none."""

    def scores(self, logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        """Logits of the estimate, in float32."""
        rows = logits.float() if self.offsets is None else logits.float() + torch.stack(list(self.offsets))
        return rows * torch.tensor(self.factors, device=rows.device)[:, None]


class DraftProbabilities(Protocol):
    """Probabilities that the growth of draft trees uses. `GumbelNoise` implements this interface for drafts that know
    the target's noise.
    """

    @property
    def noisy(self) -> bool:
        """Whether the probabilities include the target's noise, and so differ from the draft's own probabilities."""

    def greedy_from(self, position: int) -> bool:
        """Whether decoding is greedy at a position and all later ones; if so, the draft's logits stay unchanged."""

    def estimate(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> "Estimate":
        """The estimated distributions of the target's tokens at `positions`, from the draft's logits for these
        tokens.
        """

    def noise_from(self, position: int) -> TokenNoise | None:
        """Noise function for a position and later positions; None if decoding is greedy there, or if the draft does not
        know the noise.
        """


class OwnProbabilities:
    """`DraftProbabilities` of a draft that does not know the target's noise: the draft's own probabilities, at the
    target's temperature.
    """

    noisy = False

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def greedy_from(self, position: int) -> bool:
        return self._schedule.greedy_from(position)

    def estimate(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Estimate:
        settings = [self._schedule.at(position) for position in positions]
        factors = [
            1.0 if sampling.greedy else 1 / max(sampling.temperature, LEAST_TEMPERATURE) for sampling in settings
        ]
        if not any(sampling.truncates for sampling in settings):
            return Estimate(factors)
        nothing = torch.zeros(logits.shape[-1], device=logits.device)
        return Estimate(factors, with_truncation(logits, [nothing] * len(settings), settings))

    def noise_from(self, position: int) -> None:
        """See `DraftProbabilities`."""

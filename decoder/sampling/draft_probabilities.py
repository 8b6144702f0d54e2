"""The draft's estimate of the target's choice when sampling: with the target's noise, or without it."""

from collections.abc import Sequence
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from decoder.sampling.gumbel_noise import OUTSIDE, kept
from decoder.sampling.noise import TokenNoise
from decoder.sampling.probabilities import LEAST_TEMPERATURE
from decoder.sampling.settings import Schedule


class DraftProbabilities(Protocol):
    """Probabilities that trees grow by; `GumbelNoise` gives them to a draft that knows the target's noise."""

    @property
    def noisy(self) -> bool:
        """Whether probabilities are others than the draft's own probabilities."""

    def greedy_from(self, position: int) -> bool:
        """Whether it leaves logits as they are, from a position on."""

    def probabilities(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Float[Tensor, "N V"]:
        """Logits of the probabilities, from the draft's logits for tokens at these positions."""

    def noise_from(self, position: int) -> TokenNoise | None:
        """The noise from a position on; None where nothing is random, or nothing is known of it."""


class OwnProbabilities:
    """`DraftProbabilities` of a draft that does not know the noise: its probabilities at the target's temperature."""

    noisy = False

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def greedy_from(self, position: int) -> bool:
        """See `DraftProbabilities`."""
        return self._schedule.greedy_from(position)

    def probabilities(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Float[Tensor, "N V"]:
        """See `DraftProbabilities`."""
        rows = logits.float().clone()
        for place, position in enumerate(positions):
            sampling = self._schedule.at(position)
            if sampling.truncates:
                rows[place] -= OUTSIDE * ~kept(rows[place : place + 1], sampling)[0]
            if not sampling.greedy:
                rows[place] /= max(sampling.temperature, LEAST_TEMPERATURE)
        return rows

    def noise_from(self, position: int) -> None:
        """See `DraftProbabilities`."""

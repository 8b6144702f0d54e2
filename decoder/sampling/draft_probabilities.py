"""The draft's estimate of the target's next token, made with or without knowledge of the target's Gumbel noise."""

from collections.abc import Sequence
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from decoder.sampling.gumbel_noise import TRUNCATION_PENALTY, truncation_mask
from decoder.sampling.noise import TokenNoise
from decoder.sampling.probabilities import LEAST_TEMPERATURE
from decoder.sampling.settings import Schedule


class DraftProbabilities(Protocol):
    """Probabilities that the growth of draft trees uses. `GumbelNoise` implements this interface for drafts that know
    the target's noise.
    """

    @property
    def noisy(self) -> bool:
        """Whether the probabilities include the target's noise, and so differ from the draft's own probabilities."""

    def greedy_from(self, position: int) -> bool:
        """Whether decoding is greedy at a position and all later ones; if so, the draft's logits stay unchanged."""

    def probabilities(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Float[Tensor, "N V"]:
        """Logits whose softmax is the estimated distribution of the target's tokens at `positions`, computed from the
        draft's logits for these tokens.
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
        """See `DraftProbabilities`."""
        return self._schedule.greedy_from(position)

    def probabilities(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Float[Tensor, "N V"]:
        """See `DraftProbabilities`."""
        rows = logits.float().clone()
        for place, position in enumerate(positions):
            sampling = self._schedule.at(position)
            if sampling.truncates:
                rows[place] -= TRUNCATION_PENALTY * ~truncation_mask(rows[place : place + 1], sampling)[0]
            if not sampling.greedy:
                rows[place] /= max(sampling.temperature, LEAST_TEMPERATURE)
        return rows

    def noise_from(self, position: int) -> None:
        """See `DraftProbabilities`."""

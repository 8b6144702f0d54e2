"""Noise and sampling settings of one text, in tensors that CUDA graphs read, so that new settings need no new capture.

Computes the same values as `decoder.sampling.gumbel_noise`, in tensors of fixed shape. Knows no models and no trees.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.sampling.gumbel_noise import SHARPNESS, truncation_masks
from decoder.sampling.noise import gumbel_of, signed, streams
from decoder.sampling.settings import Schedule


class DeviceSampling:
    """A text's seed, and its sampling settings by position, in device tensors with fixed addresses."""

    def __init__(self, device: torch.device, capacity: int) -> None:
        """Allocates tensors for `capacity` positions."""
        self._positions = torch.arange(capacity, device=device)
        self._streams: Int[Tensor, S] = torch.zeros_like(self._positions)
        """First counter of each position's random bits (see `decoder.sampling.noise.streams`)."""
        self._temperature: Float[Tensor, S] = torch.zeros(capacity, device=device)
        self._ranks: Float[Tensor, S] = torch.zeros(capacity, device=device)
        self._share: Float[Tensor, S] = torch.zeros(capacity, dtype=torch.float64, device=device)
        self._whole: Bool[Tensor, S] = torch.ones(capacity, dtype=torch.bool, device=device)
        """Whether truncation keeps all tokens, by position."""
        self._sharpness: Float[Tensor, S] = torch.ones(capacity, device=device)

    def follow(self, seed: int, schedule: Schedule, position: int) -> None:
        """Writes a seed, and the settings for a position and all later positions; does not synchronise host and
        device.
        """
        number = torch.full((1,), signed(seed), device=self._positions.device)
        self._streams.copy_(streams(number, self._positions))
        for start, sampling in schedule.in_force(position):
            self._temperature[start:].fill_(sampling.temperature)
            self._ranks[start:].fill_(sampling.ranks)
            self._share[start:].fill_(sampling.share)
            self._whole[start:].fill_(not sampling.truncates)
            self._sharpness[start:].fill_(1.0 if sampling.greedy else SHARPNESS)

    def noise(self, positions: Int[Tensor, "D"], vocabulary: int) -> Float[Tensor, "D V"]:
        """Each position's noise times its temperature."""
        tokens = torch.arange(vocabulary, device=positions.device)
        noise = gumbel_of(self._streams.index_select(0, positions), tokens).float()
        return noise * self._temperature.index_select(0, positions)[:, None]

    def sharpness(self, positions: Int[Tensor, "D"]) -> Float[Tensor, "D"]:
        """Factor on logits plus noise at each position: `SHARPNESS`, or 1 where decoding is greedy."""
        return self._sharpness.index_select(0, positions)

    def truncation_mask(self, logits: Float[Tensor, "N V"], positions: Int[Tensor, "N"]) -> Bool[Tensor, "N V"]:
        """One mask per row: the tokens that truncation keeps at the row's position. Several rows may have the same
        position.
        """
        settings = (
            setting.index_select(0, positions)[:, None] for setting in (self._temperature, self._ranks, self._share)
        )
        return truncation_masks(logits, *settings) | self._whole.index_select(0, positions)[:, None]

"""Noise and sampling settings of one text, in tensors that CUDA graphs read, so that new settings need no new capture.

Computes the same values as `decoder.sampling.gumbel_noise`, in tensors of fixed shape. Knows no models and no trees.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.sampling.gumbel_noise import SHARPNESS
from decoder.sampling.noise import gumbel_of, signed, streams
from decoder.sampling.settings import Schedule
from decoder.sampling.truncation import DeviceTruncation, Truncating, Truncation


class DeviceSampling:
    """A text's seed, and its sampling settings by position, in tensors with fixed addresses."""

    def __init__(self, device: torch.device, capacity: int, truncating: Truncating = DeviceTruncation.of) -> None:
        """Allocates tensors for `capacity` positions."""
        self._truncating = truncating
        self._positions = torch.arange(capacity, device=device)
        self._streams: Int[Tensor, S] = torch.zeros_like(self._positions)
        """See `decoder.sampling.noise.streams`."""
        self._temperature: Float[Tensor, S] = torch.zeros(capacity, device=device)
        self._truncation: Float[Tensor, "S 3"] = torch.ones((capacity, 3), dtype=torch.float64, device=device)
        """See `Truncating`. Greedy positions keep all tokens."""
        self._sharpness: Float[Tensor, S] = torch.ones(capacity, device=device)

    def follow(self, seed: int, schedule: Schedule, position: int) -> None:
        """Writes a seed, and the settings from a position on; does not synchronise host and device."""
        number = torch.full((1,), signed(seed), device=self._positions.device)
        self._streams.copy_(streams(number, self._positions))
        for start, sampling in schedule.in_force(position):
            self._temperature[start:].fill_(sampling.temperature)
            settings = sampling.temperature, sampling.ranks, sampling.share
            if not sampling.truncates:
                settings = 1.0, math.inf, math.inf
            for column, setting in enumerate(settings):
                self._truncation[start:, column].fill_(setting)
            self._sharpness[start:].fill_(1.0 if sampling.greedy else SHARPNESS)

    def noise(self, positions: Int[Tensor, "D"], vocabulary: int) -> Float[Tensor, "D V"]:
        """Times each position's temperature."""
        tokens = torch.arange(vocabulary, device=positions.device)
        noise = gumbel_of(self._streams.index_select(0, positions), tokens).float()
        return noise * self._temperature.index_select(0, positions)[:, None]

    def sharpness(self, positions: Int[Tensor, "D"]) -> Float[Tensor, "D"]:
        """`SHARPNESS`, or 1 where decoding is greedy."""
        return self._sharpness.index_select(0, positions)

    def truncation(self, positions: Int[Tensor, "N"], vocabulary: int) -> Truncation:
        """Several rows may have the same position."""
        return self._truncating(self._truncation.index_select(0, positions), vocabulary)

"""Gumbel noise in memory of the host, by the compiled library or by numpy; their numbers differ by rounding."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from decoder.forward.compiled.library import gumbel_noise, library
from decoder.sampling.noise import gumbel_by_numpy, starts_on_host


def gumbel_on_host(seed: int, positions: Sequence[int], vocabulary: int) -> Float[Tensor, "N V"]:
    """By the compiled library if there is one, since numpy's temporary arrays cost page faults."""
    if found := library():
        return gumbel_noise(found, starts_on_host(seed, positions), vocabulary)
    return gumbel_by_numpy(seed, positions, vocabulary)

"""Coupled verification: a drafted token is accepted if the target, with the noise of the token's position, chooses the
same token.

At temperature 0 there is no noise, so verification is greedy. Above temperature 0, the text has the target's
distribution if the seed is random. This holds for every draft, since no choice of the target depends on the draft.
Siblings have different tokens, so at most one path is accepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.events import Verification
from decoder.forward.finite_logits import choices, require_choices
from decoder.sampling.gumbel_noise import SHARPNESS, GumbelNoise
from decoder.sampling.on_device import DeviceSampling
from decoder.sampling.probabilities import probabilities
from decoder.sampling.settings import Schedule
from decoder.sampling.truncation import TRUNCATION_PENALTY
from decoder.tree import TokenTree
from decoder.verify.greedy import GreedyVerifier, accept
from decoder.verify.statistics import token_statistics
from decoder.verify.verifier import DeviceVerifier, Probabilities, Verifier


@dataclass(frozen=True)
class CoupledVerifier(Verifier):
    """Coupled sampling; greedy at temperature 0."""

    noise: GumbelNoise

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        if self.noise.greedy_from(first):
            return GreedyVerifier().verify(tree, logits, first)
        positions = [first + depth for depth in tree.depths]
        if (offsets := self.noise.offsets(positions)) is not None:
            return accept(tree, choices(logits, offsets).__getitem__)
        require_choices(logits)
        return accept(tree, self.noise.chooser(logits, positions))

    def statistics(
        self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int, path: Sequence[int], committed: Sequence[int]
    ) -> Verification | None:
        if self.noise.greedy_from(first):
            return None
        nodes = [0, *path][: len(committed)]
        settings = [self.noise.sampling(first + tree.depths[node]) for node in nodes]
        target_probs = probabilities(logits[nodes], settings)
        return token_statistics(target_probs, committed) if target_probs.isfinite().all() else None


@dataclass(frozen=True)
class CoupledDeviceVerifier(DeviceVerifier):
    """Coupled sampling; the CUDA graphs read seed and settings from device tensors."""

    truncates: bool
    """Whether top-k or top-p may exclude tokens."""

    def choose(
        self,
        logits: Float[Tensor, "N V"],
        sampling: DeviceSampling,
        positions: Int[Tensor, "D"],
        levels: Int[Tensor, "N"],
    ) -> Int[Tensor, "N"]:
        """Computes in float32, as `GumbelNoise.choices` does."""
        rows, depths = _at_most_float32(logits), (levels - 1).clamp(min=0)
        scores = rows + sampling.noise(positions, rows.shape[1]).index_select(0, depths)
        if self.truncates:
            truncation = sampling.truncation(positions.index_select(0, depths), rows.shape[1])
            scores = scores.masked_fill(truncation.excluded(rows), -torch.inf)
        return scores.argmax(-1)

    def probabilities(self, sampling: DeviceSampling, positions: Int[Tensor, "D"], vocabulary: int) -> Probabilities:
        """See `GumbelNoise.estimate`."""
        sharpness = sampling.sharpness(positions)[:, None]
        noise = sampling.noise(positions, vocabulary) * sharpness
        truncation = sampling.truncation(positions, vocabulary) if self.truncates else None

        def at_depth(logits: Float[Tensor, "W V"], depth: int) -> Float[Tensor, "W V"]:
            rows = _at_most_float32(logits)
            scores = torch.addcmul(noise[depth], rows, sharpness[depth])
            if truncation:
                # Where truncation excludes tokens, the factor on the penalty is `SHARPNESS`.
                scores.add_(truncation.row(depth).excluded(rows), alpha=-TRUNCATION_PENALTY * SHARPNESS)
            return scores

        return at_depth


def _at_most_float32(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """Half precision stays, since sums with noise are in float32 anyway."""
    return logits.float() if logits.dtype == torch.float64 else logits


def device_verifier(schedule: Schedule, position: int) -> DeviceVerifier:
    """The cheapest one for the settings from a position on."""
    if schedule.greedy_from(position):
        return GreedyVerifier()
    return CoupledDeviceVerifier(truncates=schedule.truncates_from(position))

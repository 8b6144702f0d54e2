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
from decoder.sampling.gumbel_noise import TRUNCATION_PENALTY, GumbelNoise
from decoder.sampling.on_device import DeviceSampling
from decoder.sampling.probabilities import probabilities
from decoder.sampling.settings import Schedule
from decoder.tree import TokenTree
from decoder.verify.greedy import GreedyVerifier, accept
from decoder.verify.statistics import token_statistics
from decoder.verify.verifier import DeviceVerifier, Probabilities


@dataclass(frozen=True)
class CoupledVerifier:
    """`Verifier` of one text by coupled sampling; greedy at temperature 0."""

    noise: GumbelNoise

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """See `Verifier`."""
        if self.noise.greedy_from(first):
            return GreedyVerifier().verify(tree, logits, first)
        return accept(tree, self.noise.chooser(logits, [first + depth for depth in tree.depths]))

    def statistics(
        self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int, path: Sequence[int], committed: Sequence[int]
    ) -> Verification | None:
        """See `Verifier`."""
        if self.noise.greedy_from(first):
            return None
        nodes = [0, *path][: len(committed)]
        settings = [self.noise.sampling(first + tree.depths[node]) for node in nodes]
        return token_statistics(probabilities(logits[nodes], settings), committed)


@dataclass(frozen=True)
class CoupledDeviceVerifier:
    """`DeviceVerifier` by coupled sampling. Its CUDA graphs read seed and sampling settings from device tensors."""

    truncates: bool
    """Whether top-k or top-p may exclude tokens; if so, the graph sorts each row's logits."""

    def choose(
        self,
        logits: Float[Tensor, "N V"],
        sampling: DeviceSampling,
        positions: Int[Tensor, "D"],
        levels: Int[Tensor, "N"],
    ) -> Int[Tensor, "N"]:
        """See `DeviceVerifier`; computes in float32, as `GumbelNoise.choices` does."""
        rows, depths = logits.float(), (levels - 1).clamp(min=0)
        scores = rows + sampling.noise(positions, rows.shape[1]).index_select(0, depths)
        if self.truncates:
            mask = sampling.truncation_mask(rows, positions.index_select(0, depths))
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores.argmax(-1)

    def probabilities(self, sampling: DeviceSampling, positions: Int[Tensor, "D"], vocabulary: int) -> Probabilities:
        """See `DeviceVerifier`, and `GumbelNoise.probabilities`."""
        noise, sharpness = sampling.noise(positions, vocabulary), sampling.sharpness(positions)

        def at_depth(logits: Float[Tensor, "W V"], depth: int) -> Float[Tensor, "W V"]:
            rows = logits.float()
            scores = rows + noise[depth]
            if self.truncates:
                scores = scores - TRUNCATION_PENALTY * ~sampling.truncation_mask(rows, positions[depth : depth + 1])
            return scores * sharpness[depth]

        return at_depth


def device_verifier(schedule: Schedule, position: int) -> DeviceVerifier:
    """The cheapest `DeviceVerifier` for the sampling settings of a position and all later positions."""
    if schedule.greedy_from(position):
        return GreedyVerifier()
    return CoupledDeviceVerifier(truncates=schedule.truncates_from(position))

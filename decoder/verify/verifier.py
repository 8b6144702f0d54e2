"""Verification rules that choose the target's token at each position, greedily or with the position's noise."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.events import Verification
from decoder.forward.token_choice import choices, kept_choice, require_choices
from decoder.sampling.noise import DeviceSampling, GumbelNoise
from decoder.sampling.settings import Schedule
from decoder.sampling.truncation import TRUNCATION_PENALTY, probabilities
from decoder.tree import TokenTree

Probabilities: TypeAlias = Callable[[Float[Tensor, "W V"], int], Float[Tensor, "W V"]]
"""(draft's logits after nodes of one depth, this depth) -> logits whose softmax estimates the probability that the
target chooses each token.
"""


class Verifier(ABC):
    """A verification rule on the host, for example greedy verification."""

    @abstractmethod
    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """Accepted nodes below the root, in path order, and the token after the last accepted node.

        The root is the text's last token. `logits` are the target's logits after each node. `first` is the position,
        from 0, of the token after the root.

        Raises:
            LogitsError: No token can be chosen after a node. All nodes are checked, since NaN at one node also
                spreads to nodes whose mask excludes it.
        """

    def statistics(
        self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int, path: Sequence[int], committed: Sequence[int]
    ) -> Verification | None:
        """Statistics of a verified round; None if no token of the round was sampled, or if a logit divided by a low
        temperature overflows. `committed` are the tokens of the accepted path and one more.
        """
        del tree, logits, first, path, committed
        return None


class DeviceVerifier(ABC):
    """A verification rule within CUDA graphs. Equal rules share captured graphs, so they must have equal hashes."""

    @abstractmethod
    def choose(
        self,
        logits: Float[Tensor, "N V"],
        sampling: DeviceSampling,
        positions: Int[Tensor, "D"],
        levels: Int[Tensor, "N"],
    ) -> Int[Tensor, "N"]:
        """The token that the target chooses after the node of each row. All operations can be captured in a CUDA graph.

        `positions[d]` is the position of the token after a node of depth d. `levels` is a node's depth + 1, and 0 for a
        padding row. The results of padding rows are undefined.
        """

    def probabilities(
        self, sampling: DeviceSampling, positions: Int[Tensor, "D"], vocabulary: int
    ) -> Probabilities | None:
        """Function that estimates the target's choice from draft logits; None if draft logits are used unchanged."""
        del sampling, positions, vocabulary
        return None


_LEAST = 1e-30
"""Replaces smaller probabilities before a logarithm is taken; the surprise of probability 0 would be infinite."""


def token_statistics(target_probs: Float[Tensor, "D V"], tokens: Sequence[int]) -> Verification:
    """Statistics of committed tokens, from the target's distribution at the position of each token."""
    rows = target_probs.double().cpu().numpy()
    logs = np.log(np.maximum(rows, _LEAST))
    entropies = -(rows * logs).sum(-1)
    places = np.arange(len(tokens))
    best = rows.max(-1)
    return Verification(
        surprise=float((-logs[places, list(tokens)] - entropies).sum()),
        surprise_variance=float((rows * logs**2).sum() - (entropies**2).sum()),
        top1=float((rows.argmax(-1) == np.array(tokens)).sum() - best.sum()),
        top1_variance=float((best * (1 - best)).sum()),
    )


@dataclass(frozen=True)
class GreedyVerifier(Verifier, DeviceVerifier):
    """Chooses the most probable token; among equally probable tokens, the token with the lowest id."""

    def choose(
        self,
        logits: Float[Tensor, "N V"],
        sampling: DeviceSampling,
        positions: Int[Tensor, "D"],
        levels: Int[Tensor, "N"],
    ) -> Int[Tensor, "N"]:
        del sampling, positions, levels
        return logits.argmax(-1)

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """Computes in float32, as transformers' generate does."""
        del first
        return accept(tree, choices(logits).__getitem__)


def accept(tree: TokenTree, choice: Callable[[int], int]) -> tuple[list[int], int]:
    """Accepted nodes below the root, in path order, and the bonus token; `choice(node)` is the target's token after a
    node.
    """
    children: dict[tuple[int, int], int] = {
        (parent, token): node for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))
    }
    path: list[int] = []
    node, token = 0, choice(0)
    while (child := children.get((node, token))) is not None:
        path.append(child)
        node, token = child, choice(child)
    return path, token


@dataclass(frozen=True)
class CoupledVerifier(Verifier):
    """Coupled sampling; greedy verification at temperature 0."""

    noise: GumbelNoise

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        if self.noise.greedy_from(first):
            return GreedyVerifier().verify(tree, logits, first)
        positions = [first + depth for depth in tree.depths]
        if (truncation := self.noise.truncation(positions)) is None:
            return accept(tree, choices(logits, self.noise.offsets(positions)).__getitem__)
        require_choices(logits)
        if chosen := kept_choice(logits, self.noise.offsets(positions), truncation):
            return accept(tree, chosen)
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
                scores.addcmul_(truncation.row(depth).excluded(rows), sharpness[depth], value=-TRUNCATION_PENALTY)
            return scores

        return at_depth


def _at_most_float32(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """Converts float64 to float32. Half precision is kept, since its sums with noise are in float32 anyway."""
    return logits.float() if logits.dtype == torch.float64 else logits


def device_verifier(schedule: Schedule, position: int) -> DeviceVerifier:
    """The cheapest verifier that suffices for the sampling settings from a position on."""
    if schedule.greedy_from(position):
        return GreedyVerifier()
    return CoupledDeviceVerifier(truncates=schedule.truncates_from(position))

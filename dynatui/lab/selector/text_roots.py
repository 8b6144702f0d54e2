"""Roots along one text: the models' distributions at each root, and sampled tokens that trees of all shapes share.

This module knows nothing of training and evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.draft_passes import DraftPasses
from decoder.models.pair import Pair
from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import probabilities
from decoder.selector.features import LOOKED_BACK, Root
from decoder.tree import TokenTree
from decoder.verify.lossless.batched.plans import draw
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Rows
from dynatui.lab.selector.labels import SharedDraws, expected_tokens


@dataclass(frozen=True)
class RootDraws:
    """Shared draws below one root, with both models' distributions after all nodes."""

    draws: SharedDraws
    target_probs: Rows
    """Target's distributions, shape (N, V)."""
    draft_probs: Rows
    """Draft's distributions, shape (N, V); zeros after nodes without draws."""

    def expected_tokens(self, verifier: str) -> Float[np.ndarray, "A"]:
        """Expected block efficiency of the tree of each shape; see `dynatui.lab.selector.labels`."""
        return expected_tokens(self.draws, self.target_probs, self.draft_probs, verifier)


class TextRoots:
    """Roots of one text, visited in text order."""

    def __init__(
        self, pair: Pair, sampling: Sampling, most: DelayedTree, most_tokens: int, generator: RandomGenerator
    ) -> None:
        """Prepares the roots of one text.

        Args:
            pair: The pair; if roots must have hidden rows, it must come from `Pair.observed`.
            sampling: Sampling settings at all positions.
            most: Shape with the largest K, L1 and L2.
            most_tokens: Maximum number of tokens of the text.
            generator: Random numbers for the draft's sampled tokens.
        """
        self._pair, self._sampling, self._most, self._generator = pair, sampling, most, generator
        shared = most.depth + (most.l1 + 1) * (most.k - 1) * most.l2
        self._cache = pair.target.new_cache(most_tokens + 1 + shared)
        self._draft = DraftPasses(pair.draft_model, pair.vocabulary, most_tokens)
        self._text: Sequence[int] = ()

    @torch.inference_mode()
    def advance(self, text: Sequence[int]) -> Root:
        """Root at the last token of a text of at least two tokens; the text must continue the text of the previous
        call.
        """
        self._text = text
        target_logits = self._pair.target.read(self._cache, text[self._cache.length : -1])
        target_hidden = self._pair.target.hidden
        draft_logits, _ = self._draft.again_after(text, LOOKED_BACK)
        logits = torch.cat([target_logits[None].float(), draft_logits.float()])
        rows = probabilities(logits, [self._sampling] * (1 + LOOKED_BACK))
        return Root(rows[0], rows[1], rows[2], _hidden(target_hidden, self._draft.hidden), len(text), self._sampling)

    @torch.inference_mode()
    def drawn(self) -> RootDraws:
        """Shared draws below the current root, sampled anew at each call."""
        draws = shared_draws(self._draft, self._text, self._sampling, self._most, self._generator)
        tree = draws.tree
        positions = [len(self._text) - 1 + depth for depth in tree.depths]
        logits = self._pair.target.forward(self._cache, tree.tokens, positions, tree.visible())
        self._cache.keep([])
        target_probs = probabilities(logits, [self._sampling] * len(tree)).double().cpu().numpy()
        draft_probs = np.zeros_like(target_probs)
        for node, node_draws in (tree.draws or {}).items():
            draft_probs[node] = node_draws.row.double().cpu().numpy()
        return RootDraws(draws, target_probs, draft_probs)


def shared_draws(
    draft: DraftPasses, text: Sequence[int], sampling: Sampling, most: DelayedTree, generator: RandomGenerator
) -> SharedDraws:
    """Draws below the last token of a text, which the trees of all shapes share. Samples one level after another."""
    draft.begin_tree()
    tree = TokenTree([text[-1]], draws={})
    trunk, sides = [0], {l1: [list[int]() for _ in range(most.k - 1)] for l1 in range(most.l1 + 1)}
    for depth in range(most.depth):
        growing = [side for l1, group in sides.items() for side in group if l1 <= depth < l1 + most.l2]
        ends = [trunk[-1], *(side[-1] if side else trunk[-1] for side in growing)]
        nodes = list(dict.fromkeys(ends))
        if depth:
            logits, _ = draft.after_level(tree, nodes)
        else:
            logits = draft.again_after(text, 1)[0]
        rows = probabilities(logits, [sampling] * len(nodes))
        tokens = draw(rows[torch.tensor([nodes.index(end) for end in ends]).to(rows.device)], generator).tolist()
        for end, token, rollout in zip(ends, tokens, [trunk, *growing], strict=True):
            row = rows[nodes.index(end)]
            rollout.extend(tree.draw(end, [token], [float(row[token].log())], row))
    draft.commit([])
    return SharedDraws(most, tree, trunk, sides)


def _hidden(target: Tensor | None, draft: Tensor | None) -> tuple[Tensor, ...]:
    return () if target is None or draft is None else (target[-1], draft[-2], draft[-1])

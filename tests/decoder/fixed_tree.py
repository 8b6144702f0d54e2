"""A tree of siblings and branches of unequal length, and the difference of its logits from those of plain text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoder.forward.language_model import LanguageModel
from decoder.forward.protocol import Forward
from decoder.tree import visibility
from tests.decoder.any_family import CONTEXT, PROMPT
from tests.decoder.random_trees import path

PARENTS = (-1, 0, 0, 1, 1, 2, 5, 3)
"""Parent of each node."""
SPLIT = 9
"""Number of prompt tokens read first; the rest is read in a second pass."""


PATHS = [path(PARENTS, node) for node in range(len(PARENTS))]
VISIBLE = visibility(PATHS, len(PARENTS))
FORK = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=np.bool_)
"""Mask of a root, two children, and a child of the first."""
FORKED, PLACES = [5, 6, 7, 8], [len(PROMPT) + depth for depth in (0, 1, 1, 2)]
"""Tokens of these four rows after the prompt, and their positions."""


@torch.inference_mode()
def plain(module: Any, text: Sequence[int]) -> Tensor:
    """Logits after each token of a text, without a KV cache; shape (len(text), V)."""
    logits: Tensor = module(input_ids=torch.tensor([list(text)]), use_cache=False).logits[0]
    return logits


@torch.inference_mode()
def largest_difference(
    form: Forward | LanguageModel,
    module: Any,
    keeping: Sequence[Sequence[int]],
    levels: Sequence[range] = (range(len(PARENTS)),),
) -> float:
    """Largest difference between a node's logits and those of its path as plain text, relative to the largest logit.

    Computes one tree for each path in `keeping`, level by level, and then keeps that path in the cache.
    """
    text, worst = list(PROMPT), 0.0
    cache = form.new_cache(CONTEXT)
    form.read(cache, text[:SPLIT])
    form.read(cache, text[SPLIT:])
    for kept in keeping:
        tokens = [(7 * node + len(text)) % 90 for node in range(len(PARENTS))]
        parts = []
        for level in levels:
            places = [len(text) + len(PATHS[node]) - 1 for node in level]
            visible = VISIBLE[level.start : level.stop, : level.stop]
            parts.append(form.forward(cache, [tokens[node] for node in level], places, visible))
        logits = torch.cat(parts)
        for nodes in (PATHS[node] for node in range(len(PARENTS)) if node not in PARENTS):
            right = plain(module, text + [tokens[node] for node in nodes])[len(text) :]
            worst = max(worst, float((logits[nodes] - right).abs().max() / right.abs().max()))
        cache.keep([cache.length + node for node in kept])
        text += [tokens[node] for node in kept]
    return worst

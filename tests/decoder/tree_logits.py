"""A tree of siblings and branches of unequal length, and how far its logits are from those of plain text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoder.forward.protocol import Forward
from tests.decoder.any_family import CONTEXT, PROMPT

PARENTS = (-1, 0, 0, 1, 1, 2, 5, 3)
"""The tree's nodes by the parents above them."""
SPLIT = 9
"""Number of tokens in the first of the two parts in which the prompt is read."""


def path_of(node: int) -> list[int]:
    """Nodes from the root to this one."""
    return [] if node < 0 else [*path_of(PARENTS[node]), node]


PATHS = [path_of(node) for node in range(len(PARENTS))]
VISIBLE = np.array([[other in path for other in range(len(PARENTS))] for path in PATHS])


@torch.inference_mode()
def plain(module: Any, text: Sequence[int]) -> Tensor:
    """Logits after each token of a text, without a cache; shape (len(text), V)."""
    logits: Tensor = module(input_ids=torch.tensor([list(text)]), use_cache=False).logits[0]
    return logits


@torch.inference_mode()
def largest_difference(
    form: Forward, module: Any, keeping: Sequence[Sequence[int]], levels: Sequence[range] = (range(len(PARENTS)),)
) -> float:
    """Largest difference of any node's logits from those of its path as plain text, over the largest logit.

    Trees are computed in these levels, and each is followed by one of the kept paths.
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
        for path in (path for node, path in enumerate(PATHS) if node not in PARENTS):
            right = plain(module, text + [tokens[node] for node in path])[len(text) :]
            worst = max(worst, float((logits[path] - right).abs().max() / right.abs().max()))
        cache.keep([cache.length + node for node in kept])
        text += [tokens[node] for node in kept]
    return worst

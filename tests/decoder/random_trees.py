"""Random trees after random texts, and the error of a form's logits against those of plain text."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decoder.forward.protocol import Forward


def grown(seed: int, words: int) -> tuple[list[int], list[int], list[int], NDArray[np.bool_]]:
    """A random text and a random tree rooted at its last token: the text, and the tree's tokens, parents and mask."""
    random = np.random.default_rng(seed)
    text = random.integers(0, words, int(random.integers(1, 90))).tolist()
    nodes = int(random.integers(1, 24))
    parents = [-1, *(int(random.integers(0, node)) for node in range(1, nodes))]
    visible = np.eye(nodes, dtype=np.bool_)
    for node in range(1, nodes):
        visible[node] |= visible[parents[node]]
    return text, [text[-1], *random.integers(0, words, nodes - 1).tolist()], parents, visible


def path(parents: list[int], node: int) -> list[int]:
    """Nodes from the root to this one."""
    return [*path(parents, parents[node]), node] if node >= 0 else []


@torch.inference_mode()
def errors(model: Forward, module: Any, seed: int, judge: Any) -> tuple[float, float]:
    """Largest error of the form's and of the module's logits against those of `judge`, over the nodes of one tree."""
    text, tokens, parents, visible = grown(seed, module.config.vocab_size)
    cache = model.new_cache(len(text) + len(tokens))
    if text[:-1]:
        model.read(cache, text[:-1])
    depths = [len(path(parents, node)) - 1 for node in range(len(tokens))]
    found = model.forward(cache, tokens, [len(text) - 1 + depth for depth in depths], visible)
    mine, its = 0.0, 0.0
    for node in range(len(tokens)):
        ids = torch.tensor([[*text[:-1], *(tokens[above] for above in path(parents, node))]])
        right = judge(ids).logits[0, -1].double()
        mine = max(mine, float((found[node].double() - right).abs().max()))
        its = max(its, float((module(ids).logits[0, -1].double() - right).abs().max()))
    return mine, its

"""Random trees after random texts, and the error of a form's logits against those of plain text."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
def plain(module: Any, text: list[int], tokens: list[int], paths: list[list[int]]) -> Tensor:
    """Logits after each path, read as plain text, in one batch; shape (N, V). What stands after a path is not seen."""
    texts = [[*text, *(tokens[node] for node in nodes)] for nodes in paths]
    longest = max(map(len, texts))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in texts])
    logits: Tensor = module(ids, use_cache=False).logits[list(range(len(texts))), [len(row) - 1 for row in texts]]
    return logits.double()


@torch.inference_mode()
def errors(model: Forward, module: Any, seed: int, judge: Any) -> tuple[float, float]:
    """Largest error of the form's and of the module's logits against those of `judge`, over the nodes of one tree."""
    text, tokens, parents, visible = grown(seed, module.config.vocab_size)
    cache = model.new_cache(len(text) + len(tokens))
    if text[:-1]:
        model.read(cache, text[:-1])
    paths = [path(parents, node) for node in range(len(tokens))]
    found = model.forward(cache, tokens, [len(text) + len(nodes) - 2 for nodes in paths], visible)
    right = plain(judge, text[:-1], tokens, paths)
    its = right if module is judge else plain(module, text[:-1], tokens, paths)
    return float((found.double() - right).abs().max()), float((its - right).abs().max())

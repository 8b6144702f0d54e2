"""Random trees after random texts, and the error of a form's logits against those of plain text."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.protocol import Forward
from decoder.tree import visibility


def path(parents: Sequence[int], node: int) -> list[int]:
    return [*path(parents, parents[node]), node] if node >= 0 else []


@dataclass(frozen=True)
class Tree:
    """Rows drafted after a text; a parent of -1 is the text's last token."""

    text: Sequence[int]
    tokens: list[int]
    parents: list[int]

    @classmethod
    def at_random(cls, seed: int, text: Sequence[int], nodes: int, *, near: int | None = None) -> "Tree":
        """Parents are any earlier nodes or the text, or else among the `near` nodes before, so that paths are long."""
        luck = random.Random(seed)
        parents = [
            luck.randrange(-1 if near is None or not node else max(0, node - near), node) for node in range(nodes)
        ]
        return cls(text, [luck.randrange(3, 90) for _ in range(nodes)], parents)

    @cached_property
    def paths(self) -> list[list[int]]:
        return [path(self.parents, node) for node in range(len(self.parents))]

    @property
    def visible(self) -> NDArray[np.bool_]:
        return visibility(self.paths, len(self.parents))

    @property
    def positions(self) -> list[int]:
        return [len(self.text) + len(nodes) - 1 for nodes in self.paths]


def grown(seed: int, words: int) -> Tree:
    """A random text and a random tree with one root after it."""
    luck = np.random.default_rng(seed)
    text = luck.integers(0, words, int(luck.integers(1, 90))).tolist()
    nodes = int(luck.integers(1, 24))
    parents = [-1, *(int(luck.integers(0, node)) for node in range(1, nodes))]
    return Tree(text[:-1], [text[-1], *luck.integers(0, words, nodes - 1).tolist()], parents)


@torch.inference_mode()
def plain(module: Any, tree: Tree) -> Tensor:
    """Logits after each path, read as plain text, in one batch; shape (N, V). What stands after a path is not seen."""
    texts = [[*tree.text, *(tree.tokens[node] for node in nodes)] for nodes in tree.paths]
    longest = max(map(len, texts))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in texts])
    logits: Tensor = module(ids, use_cache=False).logits[list(range(len(texts))), [len(row) - 1 for row in texts]]
    return logits.double()


@torch.inference_mode()
def errors(model: Forward, module: Any, seed: int, judge: Any) -> tuple[float, float]:
    """Largest error of the form's and of the module's logits against those of `judge`, over the nodes of one tree."""
    tree = grown(seed, module.config.vocab_size)
    cache = model.new_cache(len(tree.text) + len(tree.tokens))
    if tree.text:
        model.read(cache, tree.text)
    found = model.forward(cache, tree.tokens, tree.positions, tree.visible)
    right = plain(judge, tree)
    its = right if module is judge else plain(module, tree)
    return float((found.double() - right).abs().max()), float((its - right).abs().max())

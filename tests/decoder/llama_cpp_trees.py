"""Draft trees for tests of llama.cpp's forms: random trees as rows, and masks and plain logits of given trees."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.llama_cpp.drafted import TEXT, DraftedRows, LlamaPass
from decoder.forward.llama_cpp.forward import LlamaForward

LENGTH = 5
"""Number of text tokens before a random tree."""
SIXTEEN = [-1, 0, 0, 0, 1, 1, 2, 4, 4, 5, 6, 7, 7, 9, 13, 14]
"""Parents of a tree of 16 nodes."""
trees = st.lists(st.integers(0, 10**6), min_size=1, max_size=24)


def grown(drafted: DraftedRows, run: Callable[[LlamaPass], None], numbers: list[int]) -> list[int]:
    """Adds one row for each number in one pass; the number selects the parent among the rows so far and the text."""
    first = len(drafted.rows)
    parents = [number % (first + index + 1) - 1 for index, number in enumerate(numbers)]
    positions = list[int]()
    for parent in parents:
        known = [row.position for row in drafted.rows] + positions
        positions.append(LENGTH if parent == TEXT else known[parent] + 1)
    new = drafted.add(numbers, positions, parents)
    drafted.steps(new, run)
    return new


def plain(forward: LlamaForward, tokens: Sequence[int]) -> Tensor:
    """Logits after the last token, decoded one token at a time."""
    cache = forward.new_cache(len(tokens))
    logits = torch.empty(0)
    for token in tokens:
        logits = forward.read(cache, [token])
    return logits


def tree(parents: Sequence[int]) -> tuple[NDArray[np.bool_], list[int]]:
    """Mask and depths of a tree whose root is node 0."""
    visible, depths = np.eye(len(parents), dtype=np.bool_), [0] * len(parents)
    for node, parent in enumerate(parents[1:], 1):
        visible[node] |= visible[parent]
        depths[node] = depths[parent] + 1
    return visible, depths


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    return [*path_to(parents[node], parents), node] if node >= 0 else []

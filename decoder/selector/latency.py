"""What a round of each shape takes: measured passes by their rows, and what lies between them (the paper, equation 11).

Written as one vector of seconds, so that the times of all rounds are a product with a matrix of counts. A round that
chooses its shape reads the last two tokens of the text first: that pass is the one that the first draw is made from.
"""

import time
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.draft.delayed import draw_tree
from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.tree_size.cost_model import Costs
from decoder.sampling.probabilities import probabilities
from decoder.sampling.settings import Sampling
from decoder.selector.actions import ACTIONS, MOST, MOST_NODES
from decoder.selector.features import LOOKED_BACK
from decoder.tree import TokenTree
from decoder.verify.lossless.drawn_tree import draft_rows, drawn_tree
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.verifiers import VERIFIERS

READ = 0
DRAFT = slice(1, 1 + MOST.k)
"""A draft pass of 1, 2, ... rows."""
VERIFY = slice(DRAFT.stop, DRAFT.stop + 1 + MOST_NODES)
"""A target pass of 1, 2, ... rows."""
ROUND, LEVEL, NODE = range(VERIFY.stop, VERIFY.stop + 3)
"""What lies between passes: once a round, once a level, once a drafted node."""
SIZE = NODE + 1
TRIED = ((1, 0, 0), (1, 0, 2), (1, 0, 8), (2, 2, 2), (4, 0, 4), (4, 4, 8))
REPEATS = 3
_SPREAD = 4.0
"""Of random logits, which are about as sure of a token as those of a model."""


@cache
def counts() -> Float[NDArray[np.float64], "A S"]:
    """How often each part of the vector occurs in a round of each action."""
    found = np.zeros((len(ACTIONS), SIZE))
    for row, action in zip(found, ACTIONS, strict=True):
        row[READ] = row[ROUND] = 1
        for depth in range(1, action.depth):
            row[DRAFT.start + (action.k if depth > action.l1 else 1) - 1] += 1
        row[VERIFY.start + action.most_nodes] = 1
        row[LEVEL], row[NODE] = action.depth, action.most_nodes
    return found


def passes(costs: Costs) -> Float[NDArray[np.float64], "S"]:
    """The measured passes of a pair; nothing between them."""
    found = np.zeros(SIZE)
    found[READ] = costs.catch_up.seconds(LOOKED_BACK)
    found[DRAFT] = [costs.draft.seconds(rows) for rows in range(1, 1 + MOST.k)]
    found[VERIFY] = [costs.verify.seconds(rows) for rows in range(1, 2 + MOST_NODES)]
    return found


def of_one_row(costs: Costs) -> tuple[float, float]:
    """Seconds of a draft pass and of a target pass of one row: what a selector is told of the machine."""
    return costs.draft.seconds(1), costs.verify.seconds(1)


@torch.inference_mode()
def between_passes(vocabulary: int, verifier: str, sampling: Sampling, device: torch.device) -> tuple[float, ...]:
    """Seconds of a round, a level and a drafted node beside the passes: rounds over random rows, timed and fitted."""
    logits = torch.randn(1 + MOST_NODES, vocabulary, generator=torch.Generator().manual_seed(0)).to(device) * _SPREAD
    shapes = [DelayedTree(*shape) for shape in TRIED]
    if verifier == "block":
        shapes = [shape for shape in shapes if shape.canonical().k == 1]
    times = [min(_round_seconds(shape, logits, verifier, sampling) for _ in range(REPEATS)) for shape in shapes]
    sizes = np.array([[1, shape.depth, shape.most_nodes] for shape in shapes])
    fitted = np.linalg.lstsq(sizes, np.array(times), rcond=None)[0]
    return tuple(np.maximum(fitted, 0).tolist())


def _round_seconds(shape: DelayedTree, logits: Float[Tensor, "N V"], verifier: str, sampling: Sampling) -> float:
    generator = PhiloxGenerator(0)

    def rows(_tree: TokenTree, nodes: Sequence[int]) -> Float[Tensor, "N V"]:
        return probabilities(logits[nodes[0] : nodes[0] + len(nodes)], [sampling] * len(nodes))

    start = time.perf_counter()
    tree = draw_tree(shape, 0, rows, generator)
    target_probs = probabilities(logits[: len(tree)].flip(0), [sampling] * len(tree))
    VERIFIERS[verifier].on_device(drawn_tree(tree), target_probs, draft_rows(tree, target_probs), generator)
    return time.perf_counter() - start

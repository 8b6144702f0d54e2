"""Expected time of a round of each shape, from measured times of passes and of the work between passes.

A round consists of passes, whose time depends on their number of rows, and of the work between passes. The times of
these parts form a vector of seconds; the times of all shapes (the paper, equation 11) are the product of a matrix of
counts and this vector. A round that chooses its shape begins with a draft pass over the last two tokens of the text,
after which the first token is sampled.
"""

import time
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.delayed_shape import ACTIONS, MOST, MOST_NODES, DelayedTree
from decoder.draft.drawn_drafter import draw_tree
from decoder.draft.tree_size.cost_model import Costs
from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import probabilities
from decoder.selector.policy import LOOKED_BACK
from decoder.tree import TokenTree
from decoder.verify.lossless.drawn_tree import draft_rows, drawn_tree
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.verifiers import VERIFIERS

READ = 0
DRAFT = slice(1, 1 + MOST.k)
"""Indices, in the vector of parts, of draft passes of 1, 2, ... rows."""
VERIFY = slice(DRAFT.stop, DRAFT.stop + 1 + MOST_NODES)
"""Indices of target passes of 1, 2, ... rows."""
ROUND, LEVEL, NODE = range(VERIFY.stop, VERIFY.stop + 3)
"""Indices of the work between passes: per round, per level, and per drafted node."""
SIZE = NODE + 1
TRIED = ((1, 0, 0), (1, 0, 2), (1, 0, 8), (2, 2, 2), (4, 0, 4), (4, 4, 8))
REPEATS = 3
_LOGIT_DEVIATION = 4.0
"""Standard deviation of the random logits, so that their entropy is about that of a model's logits."""


@cache
def counts() -> Float[np.ndarray, "A S"]:
    """How often each part occurs in a round of each action."""
    occurrences = np.zeros((len(ACTIONS), SIZE))
    for row, action in zip(occurrences, ACTIONS, strict=True):
        row[READ] = row[ROUND] = 1
        for depth in range(1, action.depth):
            row[DRAFT.start + (action.k if depth > action.l1 else 1) - 1] += 1
        row[VERIFY.start + action.most_nodes] = 1
        row[LEVEL], row[NODE] = action.depth, action.most_nodes
    return occurrences


def passes(costs: Costs) -> Float[np.ndarray, "S"]:
    """Vector of the parts' times in seconds: for passes from `costs`, and 0 for the work between passes."""
    seconds = np.zeros(SIZE)
    seconds[READ] = costs.catch_up.seconds(LOOKED_BACK)
    seconds[DRAFT] = [costs.draft.seconds(rows) for rows in range(1, 1 + MOST.k)]
    seconds[VERIFY] = [costs.verify.seconds(rows) for rows in range(1, 2 + MOST_NODES)]
    return seconds


def of_one_row(costs: Costs) -> tuple[float, float]:
    """Seconds of a one-row pass of the draft and of the target."""
    return costs.draft.seconds(1), costs.verify.seconds(1)


@torch.inference_mode()
def between_passes(vocabulary: int, verifier: str, sampling: Sampling, device: torch.device) -> tuple[float, ...]:
    """Seconds of the work between passes per round, per level and per drafted node, fitted to rounds that read random
    logits instead of running the models.
    """
    logits = torch.randn(1 + MOST_NODES, vocabulary, generator=torch.Generator().manual_seed(0)).to(device)
    logits = logits * _LOGIT_DEVIATION
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

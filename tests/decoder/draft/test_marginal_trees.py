"""If all nodes of a level have the same distribution, the method bestfirst grows DDTree's tree.

The reference is a new implementation of DDTree's heap (liranringel/ddtree): pop the most probable path, keep it, push
its next sibling and its first child.
"""

import heapq
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from decoder.draft.growth import Children, grow
from decoder.draft.model_drafter import best_children
from decoder.methods.bestfirst import BestFirst
from decoder.tree import TokenTree
from decoder.tree_rules import Growth

Path = tuple[int, ...]
LEVELS, WORDS = 6, 40


def heap_tree(marginals: Tensor, nodes: int) -> set[Path]:
    """Paths of token ids in DDTree's tree of `nodes` nodes; `marginals` are log-probabilities, shape (levels, V)."""
    ranked = [sorted(((-float(p), token) for token, p in enumerate(row))) for row in marginals]
    kept: set[Path] = set()
    heap: list[tuple[float, Path, tuple[int, ...]]] = [(ranked[0][0][0], (ranked[0][0][1],), (0,))]
    while heap and len(kept) < nodes:
        cost, path, ranks = heapq.heappop(heap)
        kept.add(path)
        level, rank = len(path) - 1, ranks[-1]
        if rank + 1 < WORDS:
            sibling, token = ranked[level][rank + 1]
            heapq.heappush(
                heap, (cost - ranked[level][rank][0] + sibling, (*path[:-1], token), (*ranks[:-1], rank + 1))
            )
        if level + 1 < len(marginals):
            child, token = ranked[level + 1][0]
            heapq.heappush(heap, (cost + child, (*path, token), (*ranks, 0)))
    return kept


def paths(tree: TokenTree, nodes: Sequence[int]) -> set[Path]:
    return {tuple(tree.tokens[each] for each in reversed(tree.ancestors(node)[:-1])) for node in nodes if node}


@pytest.mark.parametrize("nodes", [1, 4, 16, 32])
@pytest.mark.parametrize("peakedness", [0.5, 2.0, 6.0])
def test_best_first_trees_over_marginals_are_ddtree_s(nodes: int, peakedness: float) -> None:
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        marginals = (peakedness * torch.randn((LEVELS, WORDS), generator=generator)).log_softmax(-1)

        def source(
            tree: TokenTree, level: Sequence[int], growth: Growth[float], rows: Tensor = marginals
        ) -> list[Children]:
            depth = tree.depths[level[0]]
            return best_children(rows[depth : depth + 1].clone(), int(growth.wide)) * len(level)

        tree = TokenTree([0])
        kept = grow(tree, BestFirst(nodes, LEVELS).rule(), source, LEVELS)
        assert paths(tree, kept) == heap_tree(marginals, nodes)

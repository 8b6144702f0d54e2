"""Trees of `bestfirst` hold the most probable nodes."""

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder import RunConfig
from decoder.draft.growth import Children, grow
from decoder.draft.model_drafter import best_children
from decoder.errors import ConfigError
from decoder.events import Round
from decoder.methods import METHODS
from decoder.methods.bestfirst import MOST_CHILDREN, BestFirst
from decoder.session.cuda_graph.static_shapes import fits
from decoder.tree import TokenTree
from decoder.tree_rules import Growth
from tests import tiny
from tests.decoder.makers import PROMPT, TinyModels, play
from tests.decoder.session.round_comparison import oracle
from tests.reference import AMBIGUOUS, Oracle, Path


def by_falling_chance(oracle: Oracle, text: Path, deepest: int, children: int) -> Iterator[tuple[Path, float]]:
    """All nodes by decreasing path probability, each with the logarithm of its probability."""
    waiting: list[tuple[float, Path]] = [(0.0, ())]
    while waiting:
        cost, node = heapq.heappop(waiting)
        if node:
            yield node, -cost
        if len(node) < deepest:
            logprobs = oracle.draft_logprobs(text + node)
            order = sorted(range(len(logprobs)), key=lambda token: -logprobs[token])
            for token in order[:children]:
                heapq.heappush(waiting, (cost - logprobs[token], (*node, token)))


def nodes_of(event: Round) -> set[Path]:
    """Drafted nodes, each given by the tokens of its path."""
    paths: list[Path] = [()]
    for token, parent in zip(event.tokens[1:], event.parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return {*paths[1:]}


def test_what_ends_a_path_is_its_depth_or_the_number_of_nodes() -> None:
    rules = BestFirst(9, 3)
    assert (rules.limit(3, 0.5), rules.limit(2, 0.5)) == ("best_depth", "n_max")


def test_trees_of_usual_size_have_the_fixed_shapes_that_graphs_replay_and_huge_ones_do_not() -> None:
    assert all(fits(BestFirst(nodes, depth).rule()) for nodes, depth in ((8, 5), (60, 8), (128, 8)))
    assert not fits(BestFirst(256, 8).rule())


def test_its_option_reads_what_it_writes_and_names_an_example() -> None:
    (option,) = METHODS["bestfirst"].options
    assert option.changes(option.value(BestFirst(12, 4))) == {"n_max": 12, "depth": 4}
    with pytest.raises(ConfigError, match="--bestfirst is '12'; give 2 whole numbers, for example 16,6"):
        option.changes("12")


@pytest.mark.parametrize(
    ("name", "rules", "sampling"),
    [
        *((name, BestFirst(*rules), {}) for name in ("neox", "neox-strange", "llama")
          for rules in ((1, 3), (7, 1), (9, 3), (20, 5))),
        ("neox", BestFirst(9, 4), {"temperature": 0.8, "top_p": 0.9}),
        ("neox", BestFirst(MOST_CHILDREN + 18, 2), {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_tree_is_the_most_probable_nodes_of_bounded_depth(
    tiny_models: TinyModels, name: str, rules: BestFirst, sampling: dict[str, Any]
) -> None:
    """A large tree lacks only children beyond the most that a node has."""
    large = rules.n_max > MOST_CHILDREN
    config = RunConfig(("bestfirst",), 8 if large else 24, 3, bestfirst=rules, **sampling)
    rounds = play(tiny_models.engine(name), config).rounds("bestfirst")
    judge = oracle(tiny_models, name, "float32", config)
    text, clear = tuple(tiny_models.prompt_tokens(tiny_models.pair(name), PROMPT)), 0
    for event in rounds:
        found = by_falling_chance(judge, text, rules.depth, MOST_CHILDREN if large else tiny.VOCABULARY)
        kept = list(islice(found, rules.n_max))
        last, chance = kept[-1]
        # The rival must not be a descendant: its probability never exceeds its ancestor's, however close both are.
        rival = next(logp for node, logp in found if node[: len(last)] != last)
        if chance - rival > AMBIGUOUS:
            left = config.max_new_tokens - event.position
            assert nodes_of(event) == {node for node, _ in kept if len(node) < left}
            clear += 1
        text += tuple(event.committed)
    assert clear > (0 if large else len(rounds) // 2)


# If all nodes of a level have the same distribution, the tree is that of DDTree's heap (liranringel/ddtree)


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


def paths_of(tree: TokenTree, nodes: Sequence[int]) -> set[Path]:
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
        assert paths_of(tree, kept) == heap_tree(marginals, nodes)

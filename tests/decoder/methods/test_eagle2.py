"""Trees of `eagle2` are those of EAGLE-2's own procedure."""

from collections.abc import Mapping, Sequence
from itertools import product

import pytest
import torch
from torch import Tensor

from decoder.draft.growth import Children, grow
from decoder.draft.model_drafter import best_children
from decoder.errors import ConfigError
from decoder.methods import METHODS
from decoder.methods.eagle2 import PRESETS, Eagle2
from decoder.session.cuda_graph.static_shapes import fits, shape
from decoder.tree import TokenTree
from decoder.tree_rules import Growth
from tests.reference import Path

WORDS = 30


class Table:
    """A draft with random distributions after every path, and the forward passes that are asked of it."""

    def __init__(self, seed: int, peakedness: float) -> None:
        self._seed, self._peakedness = seed, peakedness
        self._rows: dict[Path, Tensor] = {}
        self.passes = 0

    def row(self, path: Path) -> Tensor:
        if path not in self._rows:
            generator = torch.Generator().manual_seed(hash((self._seed, path)) % 2**31)
            scores = self._peakedness * torch.randn(WORDS, generator=generator, dtype=torch.float64)
            self._rows[path] = scores.float().log_softmax(-1)
        return self._rows[path]

    def source(self, tree: TokenTree, level: Sequence[int], growth: Growth[float]) -> list[Children]:
        self.passes += 1
        rows = torch.stack([self.row(path_of(tree, node)) for node in level])
        return best_children(rows, int(growth.wide))


def path_of(tree: TokenTree, node: int) -> Path:
    return tuple(tree.tokens[each] for each in reversed(tree.ancestors(node)[:-1]))


def published(table: Table, rules: Eagle2) -> Mapping[Path, float]:
    """EAGLE-2's procedure: scores of all candidates, level by level; the next beam is chosen among a level's candidates
    alone; at the end the best of all. Kept paths with their log-probabilities.
    """
    beam: list[tuple[Path, float]] = [((), 0.0)]
    candidates: dict[Path, float] = {}
    for _ in range(rules.steps):
        level: dict[Path, float] = {}
        for path, score in beam:
            best = table.row(path).topk(rules.topk)
            for token, logprob in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                level[(*path, token)] = score + logprob
        candidates |= level
        beam = sorted(level.items(), key=lambda each: -each[1])[: rules.topk]
    kept = sorted(candidates.items(), key=lambda each: -each[1])[: rules.draft_tokens - 1]
    return dict(kept)


SHAPES = [*product((1, 3, 6), (1, 2, 5), (2, 8, 40)), (6, 10, 60)]


@pytest.mark.parametrize("peakedness", [0.3, 1.5, 4.0])
def test_a_tree_is_that_of_the_published_procedure(peakedness: float) -> None:
    for seed, (steps, topk, draft_tokens) in enumerate(SHAPES):
        table, rules = Table(seed, peakedness), Eagle2(steps, topk, draft_tokens)
        tree = TokenTree([0])
        kept = grow(tree, rules.rule(), table.source, steps)
        found = {path_of(tree, node): tree.path_logprobs[node] for node in kept if node}
        assert found == pytest.approx(published(table, rules), abs=1e-5)
        assert table.passes <= steps


def test_what_ends_a_path_is_the_number_of_levels_or_of_nodes() -> None:
    rules = Eagle2(3, 2, 9)
    assert (rules.limit(3, 0.5), rules.limit(2, 0.5)) == ("eagle_steps", "draft_tokens")


def test_graphs_have_rows_for_the_beam_exactly_since_more_would_grow_too() -> None:
    assert shape(Eagle2(4, 5, 30).rule()).widths == (1, 5, 5, 5)
    assert all(fits(rules.rule()) for rules in PRESETS.values())
    assert not fits(Eagle2(40, 4, 30).rule())


def test_its_option_reads_what_it_writes_and_the_names_of_presets() -> None:
    (option,) = METHODS["eagle2"].options
    assert option.changes(option.value(Eagle2(3, 2, 7))) == {"steps": 3, "topk": 2, "draft_tokens": 7}
    assert option.changes("eagle2") == {"steps": 6, "topk": 10, "draft_tokens": 60}
    with pytest.raises(ConfigError, match="--eagle2 is '5,4'; give 3 whole numbers, for example 5,4,8"):
        option.changes("5,4")

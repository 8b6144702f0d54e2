"""Exact laws by enumeration of all drafted trees and all random outcomes, for toy models of three tokens."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
import torch

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.drawn_drafter import draw_tree
from decoder.tree import TokenTree
from decoder.verify.lossless.drawn_tree import DrawnTree, drawn_tree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Row, Rows, normalised
from decoder.verify.lossless.top_down import Accepted
from tests.decoder.verify.lossless.row_by_row import Verify

VOCABULARY = 3
KINDS = (
    "generic",
    "close",
    "target zeros",
    "draft zeros",
    "equal",
    "one-hot target",
    "one-hot draft",
    "disjoint",
    "mixed",
)
SHAPES = (1, 0, 3), (2, 0, 2), (2, 1, 1), (3, 0, 2)
Prefix = tuple[int, ...]
"""Tokens of the path from the root to a node, without the root's."""
T = TypeVar("T")


class Script:
    """A generator that replays `written` and then takes each first possible outcome; `untried` lists the others."""

    def __init__(self, written: Sequence[int]) -> None:
        self.fallen: list[int] = []
        self.probability = 1.0
        self.untried: list[list[int]] = []
        self._written = written

    def bernoulli(self, probability: float) -> bool:
        assert -1e-12 <= probability <= 1 + 1e-12
        return self._fall([min(1.0, max(0.0, probability)), 1 - min(1.0, max(0.0, probability))]) == 0

    def choice(self, weights: Row) -> int:
        assert weights.min() >= 0
        return self._fall((weights / weights.sum()).tolist())

    def integers(self, count: int) -> int:
        return self._fall([1 / count] * count)

    def _fall(self, probabilities: list[float]) -> int:
        side, *others = [side for side, probability in enumerate(probabilities) if probability > 0]
        if len(self.fallen) < len(self._written):
            side = self._written[len(self.fallen)]
        else:
            self.untried += [[*self.fallen, other] for other in others]
        self.fallen.append(side)
        self.probability *= probabilities[side]
        return side


def outcomes(play: Callable[[RandomGenerator], T]) -> Iterator[tuple[T, float]]:
    """All results of a function that uses random numbers, with their probabilities."""
    waiting: list[list[int]] = [[]]
    while waiting:
        script = Script(waiting.pop())
        result = play(script)
        yield result, script.probability
        waiting += script.untried


@dataclass(frozen=True, eq=False)
class Models:
    """The target's and the draft's rows after every text up to a length."""

    target: dict[Prefix, Row]
    draft: dict[Prefix, Row]

    def draft_rows(self, tree: TokenTree, nodes: Sequence[int]) -> torch.Tensor:
        texts = [tuple(tree.tokens[each] for each in reversed(tree.ancestors(node)[:-1])) for node in nodes]
        return torch.tensor(np.stack([self.draft[text] for text in texts]))

    def rows(self, tree: DrawnTree) -> tuple[Rows, Rows]:
        texts = [tuple(tree.tokens[each] for each in tree.path(node)) for node in range(len(tree))]
        drawn = np.array([bool(children) for children in tree.children])
        target, draft = (np.stack([rows[text] for text in texts]) for rows in (self.target, self.draft))
        return target, draft * drawn[:, None]


@cache
def models(kind: str, depth: int, seed: int = 1) -> Models:
    """Toy models of a kind."""
    luck = np.random.default_rng(seed)
    texts = [text for length in range(depth + 1) for text in itertools.product(range(VOCABULARY), repeat=length)]
    pairs = {text: pair(kind, luck) for text in texts}
    return Models({text: one for text, (one, _) in pairs.items()}, {text: other for text, (_, other) in pairs.items()})


def pair(kind: str, luck: np.random.Generator, vocabulary: int = VOCABULARY) -> tuple[Row, Row]:
    """One row of the target and one of the draft."""
    target, draft = luck.dirichlet(np.full(vocabulary, 0.7), 2)
    one_hot = np.eye(vocabulary)[luck.integers(vocabulary)]
    if kind in {"target zeros", "mixed"}:
        target = without_one(target, luck)
    if kind in {"draft zeros", "mixed"}:
        draft = without_one(draft, luck)
    if kind == "disjoint":
        target[1], draft = 0.0, np.eye(vocabulary)[1]
        target = target / target.sum()
    return {
        "close": (target, 0.9 * target + 0.1 * draft),
        "equal": (target, target),
        "one-hot target": (one_hot, draft),
        "one-hot draft": (target, one_hot),
    }.get(kind, (target, draft))


def without_one(row: Row, luck: np.random.Generator) -> Row:
    left = row.copy()
    left[luck.integers(len(row))] = 0
    return normalised(left, row)


Trees = list[tuple[DrawnTree, float]]
"""Drafted trees with their probabilities."""
Drafter = Callable[[Models, RandomGenerator], TokenTree]


def trees_of(drafter: Drafter, pair: Models) -> Trees:
    """All trees of a drafter, with their probabilities."""
    found: dict[DrawnTree, float] = defaultdict(float)
    for tree, probability in outcomes(lambda generator: drafter(pair, generator)):
        found[drawn_tree(tree)] += probability
    return list(found.items())


@cache
def delayed_trees(shape: DelayedTree, pair: Models) -> Trees:
    """All delayed trees of a shape, with their probabilities."""
    return trees_of(lambda pair, generator: draw_tree(shape, -1, pair.draft_rows, generator), pair)


@dataclass(frozen=True)
class Emitted:
    """Results of a round over all trees and random outcomes."""

    distance: float
    """Total variation between the target's own text and `depth` + 1 emitted tokens, continued by the target."""
    tokens: float
    """Expected tokens of a round."""


def verified(verify: Verify, tree: DrawnTree, pair: Models) -> Iterator[tuple[Accepted, float]]:
    """Results of a verifier on one tree over all random outcomes."""
    rows = pair.rows(tree)
    return outcomes(lambda generator: verify(tree, *rows, generator))


def emitted(verify: Verify, trees: Trees, pair: Models, depth: int) -> Emitted:
    """The exact law of a verifier over trees of at most this depth."""
    found: dict[Prefix, float] = defaultdict(float)
    for tree, tree_chance in trees:
        for (path, last), probability in verified(verify, tree, pair):
            found[(*(tree.tokens[node] for node in path), last)] += tree_chance * probability
    expected = text_law(pair, depth + 1)
    joint: dict[Prefix, float] = defaultdict(float)
    for text, probability in found.items():
        for rest in itertools.product(range(VOCABULARY), repeat=depth + 1 - len(text)):
            joint[text + rest] += probability * chance_of(pair, text, rest)
    distance = sum(abs(joint[text] - probability) for text, probability in expected.items()) / 2
    return Emitted(distance, sum(probability * len(text) for text, probability in found.items()))


def text_law(pair: Models, length: int) -> dict[Prefix, float]:
    return {text: chance_of(pair, (), text) for text in itertools.product(range(VOCABULARY), repeat=length)}


def chance_of(pair: Models, text: Prefix, rest: Prefix) -> float:
    """Probability that the target continues a text with these tokens."""
    probability = 1.0
    for token in rest:
        probability *= pair.target[text][token]
        text = (*text, token)
    return probability

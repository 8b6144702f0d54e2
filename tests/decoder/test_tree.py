"""Common queries of a draft tree, and what a sampled tree holds: the inputs of a lossless verifier, which are rows as
drawn, draw order and multiplicity.

The verifier is SpecInfer's in draw order. All draft trees of a toy vocabulary are enumerated, so that distributions are
exact.
"""

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from decoder.tree import Draws, TokenTree

VOCABULARY, DEPTH, WIDTH = 3, 2, 3
Law = dict[tuple[int, ...], float]
Rebuild = Callable[[TokenTree], TokenTree]


def distribution(path: Sequence[int], salt: int) -> list[float]:
    """An arbitrary distribution after a path; `salt` selects the model."""
    luck = random.Random(f"{salt} {tuple(path)}")
    weights = [luck.randint(1, 9) for _ in range(VOCABULARY)]
    return [weight / sum(weights) for weight in weights]


def target(path: Sequence[int]) -> list[float]:
    return distribution(path, 2)


def draft(path: Sequence[int]) -> list[float]:
    return distribution(path, 10)


def path_of(tree: TokenTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[each] for each in reversed(tree.ancestors(node)[:-1]))


def copied(tree: TokenTree) -> TokenTree:
    return tree.subtree(range(len(tree)))


def drawn_trees(tree: TokenTree, waiting: Sequence[tuple[int, int]]) -> Iterator[tuple[TokenTree, float]]:
    """All trees with their probabilities; `waiting` has the nodes to draw from and the number of draws from each."""
    if not waiting:
        yield tree, 1.0
        return
    (node, count), *others = waiting
    row = draft(path_of(tree, node))
    for tokens in itertools.product(range(VOCABULARY), repeat=count):
        grown = copied(tree)
        nodes = grown.draw(node, tokens, [math.log(row[token]) for token in tokens], torch.tensor(row).double())
        below = [(child, nodes.count(child)) for child in dict.fromkeys(nodes) if grown.depths[child] < DEPTH]
        for found, chance in drawn_trees(grown, [*others, *below]):
            yield found, chance * math.prod(row[token] for token in tokens)


def next_token(tree: TokenTree, node: int, p: list[float]) -> list[float]:
    """Distribution of the verifier's token after a node."""
    draws = (tree.draws or {}).get(node) or Draws(torch.empty(0))
    law, left, rest, q = [0.0] * VOCABULARY, 1.0, p, draws.row.tolist()
    for token in (tree.tokens[child] for child in draws.children):
        accepted = min(1.0, rest[token] / q[token])
        law[token] += left * accepted
        left *= 1 - accepted
        residual = [max(0.0, one - other) for one, other in zip(rest, q, strict=True)]
        rest = [one / sum(residual) for one in residual] if sum(residual) > 0 else p
    return [one + left * other for one, other in zip(law, rest, strict=True)]


def emitted(
    tree: TokenTree, node: int | None = 0, path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Texts of DEPTH + 1 tokens with probabilities: accepted tokens, the verifier's own, and further target tokens."""
    if len(path) == DEPTH + 1:
        yield path, 1.0
        return
    law = target(path) if node is None else next_token(tree, node, target(path))
    children = (
        {} if node is None else {tree.tokens[each]: each for each in range(len(tree)) if tree.parents[each] == node}
    )
    for token, chance in enumerate(law):
        for text, further in emitted(tree, children.get(token), (*path, token)):
            yield text, chance * further


def distance(rebuild: Rebuild) -> float:
    """Total variation distance between the texts written with drafted trees and the target's texts."""
    found: Law = defaultdict(float)
    for tree, chance in drawn_trees(TokenTree([0]), [(0, WIDTH)]):
        for text, further in emitted(rebuild(tree)):
            found[text] += chance * further
    expected = {
        text: math.prod(target(text[:end])[text[end]] for end in range(DEPTH + 1))
        for text in itertools.product(range(VOCABULARY), repeat=DEPTH + 1)
    }
    return sum(abs(found[text] - chance) for text, chance in expected.items()) / 2


def changed(change: Callable[[Draws], Draws]) -> Rebuild:
    """Returns a function that copies a tree and changes all its draws."""

    def rebuild(tree: TokenTree) -> TokenTree:
        found = copied(tree)
        found.draws = {node: change(draws) for node, draws in (tree.draws or {}).items()}
        return found

    return rebuild


def test_a_node_sees_itself_and_its_ancestors_alone() -> None:
    luck, tree = random.Random(1), TokenTree([0])
    for token in range(1, 40):
        tree.add(luck.randrange(len(tree)), token, -1.0)
    visible = tree.visible()
    assert [row.nonzero()[0].tolist() for row in visible] == [sorted(tree.ancestors(node)) for node in range(len(tree))]


def test_a_verifier_that_reads_the_draws_writes_what_the_target_would() -> None:
    assert distance(copied) < 1e-6  # rows are float32


@pytest.mark.parametrize(
    "change",
    [
        lambda draws: Draws(draws.row, list(dict.fromkeys(draws.children))),
        lambda draws: Draws(draws.row, sorted(draws.children, key=lambda node: -node)),
        lambda draws: Draws(draws.row.roll(1), draws.children),
    ],
    ids=["multiplicity", "order", "rows"],
)
def test_without_any_part_of_the_draws_it_would_not(change: Callable[[Draws], Draws]) -> None:
    assert distance(changed(change)) > 0.005


def drawn_beside_grown() -> tuple[TokenTree, dict[int, Draws]]:
    """A root with its two best children; below the second, one token drawn twice and another drawn once."""
    tree = TokenTree([9])
    tree.grow(0, [1, 2], [-0.5, -1.5])
    assert tree.draws is None
    assert tree.subtree(tree.most_probable(1)).draws is None
    assert tree.draw(2, [7, 5, 7], [-1.0, -2.0, -1.0], torch.tensor([0.0] * 8)) == [3, 4, 3]
    assert tree.draws
    return tree, tree.draws


def test_a_token_that_is_drawn_again_keeps_its_node() -> None:
    tree, draws = drawn_beside_grown()
    assert tree.draw(2, [5, 6], [-2.0, -3.0], torch.tensor([0.0] * 8)) == [4, 5]
    assert tree.tokens == [9, 1, 2, 7, 5, 6]
    assert draws[2].children == [3, 4, 3, 4, 5]


def test_draws_are_renumbered_with_their_nodes() -> None:
    tree, draws = drawn_beside_grown()
    found = tree.subtree([0, 2, 3, 4])
    assert found.draws is not None
    assert (found.tokens, found.draws[1].children) == ([9, 2, 7, 5], [2, 3, 2])
    assert found.draws[1].row is draws[2].row


@pytest.mark.parametrize("kept", [[0, 2, 3], [0, 1]])
def test_a_token_that_was_drawn_cannot_be_dropped(kept: list[int]) -> None:
    with pytest.raises(ValueError, match="must stay in the tree"):
        drawn_beside_grown()[0].subtree(kept)

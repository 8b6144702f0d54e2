"""The lossless verifiers in float64, row by row: the reference that the batched ones are compared with."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from decoder.verify.lossless import khisti, naive, specinfer, spectr
from decoder.verify.lossless.bottom_up import Stop, block_stops, first, traversal_stops
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Row, Rows, ratio, residual
from decoder.verify.lossless.top_down import Accepted, Solve, descend
from decoder.verify.lossless.verifiers import VERIFIERS

Verify: TypeAlias = Callable[[DrawnTree, Rows, Rows, RandomGenerator], Accepted]
"""(tree, target rows, draft rows, random generator) -> accepted nodes and next token."""
Stops: TypeAlias = Callable[[DrawnTree, Rows, Rows], Sequence[Stop]]


def top_down(
    solve: Solve, tree: DrawnTree, target_probs: Rows, draft_probs: Rows, generator: RandomGenerator
) -> Accepted:
    def choose(node: int) -> int:
        if not tree.children[node]:
            return generator.choice(target_probs[node])
        return solve(target_probs[node], draft_probs[node], tree.drawn(node), generator)

    return descend(tree, choose)


def bottom_up(
    stops: Stops, tree: DrawnTree, target_probs: Rows, draft_probs: Rows, generator: RandomGenerator
) -> Accepted:
    stop = first(stops(tree, target_probs, draft_probs), generator)
    after = residual(target_probs[stop.node], draft_probs[stop.node], stop.removed)
    return tree.path(stop.node), generator.choice(after)


def on_first_path(tree: DrawnTree, target_probs: Rows, draft_probs: Rows, generator: RandomGenerator) -> Accepted:
    return top_down(naive.solve, tree.first_path(), target_probs, draft_probs, generator)


def solve_nss(target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator) -> int:
    del draft_probs, drawn
    return generator.choice(target_probs)


def solve_spectr(target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator) -> int:
    division = spectr.divide(target_probs, draft_probs, len(drawn))
    for token in drawn:
        if generator.bernoulli(division.probability(target_probs[token], draft_probs[token])):
            return token
    return generator.choice(division.residual)


def solve_specinfer(target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator) -> int:
    pool, rest, removed, total = list(drawn), target_probs, 0.0, 1.0
    while pool:
        token = pool.pop(generator.integers(len(pool)))
        if generator.bernoulli(ratio(rest[token], draft_probs[token])):
            return token
        removed, total, rest = specinfer.refused(target_probs, draft_probs, removed, total)
    return generator.choice(rest)


SOLVES: dict[str, Solve] = {
    "nss": solve_nss,
    "naive_tree": naive.solve,
    "spectr": solve_spectr,
    "specinfer": solve_specinfer,
    "khisti": khisti.solve,
}
VERIFY: dict[str, Verify] = {
    **{name: partial(top_down, solve) for name, solve in SOLVES.items()},
    "naive": on_first_path,
    "block": partial(bottom_up, block_stops),
    "traversal": partial(bottom_up, traversal_stops),
}


def expected_tokens(name: str, tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> float:
    """Expected block efficiency of a tree over the verifier's random numbers (the paper, equation 3)."""
    return sum(VERIFIERS[name].reach(tree, target_probs, draft_probs))

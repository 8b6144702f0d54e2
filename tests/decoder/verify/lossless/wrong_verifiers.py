"""Verifiers with one plausible mistake each; a test proves something only if it rejects them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from decoder.draft.delayed_shape import DelayedTree
from decoder.verify.lossless import khisti, naive, spectr
from decoder.verify.lossless.bottom_up import NodeSplit, Stop, block_stops, post_order, split_node, traversal_stops
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Row, Rows, normalised, positive, ratio, residual
from decoder.verify.lossless.top_down import Accepted, Solve, descend
from tests.decoder.verify.lossless.row_by_row import Verify, bottom_up, top_down

CHAIN, TREE = DelayedTree(1, 0, 2), DelayedTree(2, 0, 2)
Stops = Callable[[DrawnTree, Rows, Rows], list[Stop]]


@dataclass(frozen=True)
class Wrong:
    mistake: str
    verify: Verify
    shape: DelayedTree = TREE


def solver(solve: Solve) -> Verify:
    return partial(top_down, solve)


def accepts_by_inverse_ratio(
    target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator
) -> int:
    if generator.bernoulli(ratio(draft_probs[drawn[0]], target_probs[drawn[0]])):
        return drawn[0]
    return generator.choice(residual(target_probs, draft_probs))


def accepts_all(target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator) -> int:  # noqa: ARG001 - signature of a solver
    return drawn[0]


def naive_then(correction: Callable[[Row, Row], Row]) -> Verify:
    """The verifier naive with a wrong residual."""

    def solve(target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator) -> int:
        if generator.bernoulli(ratio(target_probs[drawn[0]], draft_probs[drawn[0]])):
            return drawn[0]
        return generator.choice(correction(target_probs, draft_probs))

    return solver(solve)


def most_probable(target_probs: Row, draft_probs: Row) -> Row:
    law = residual(target_probs, draft_probs)
    return normalised(np.where(law == law.max(), 1.0, 0.0), law)


def spectr_in(divide: Callable[[Row, Row, Sequence[int]], spectr.Division]) -> Verify:
    """The verifier spectr with a wrong division factor."""

    def solve(target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator) -> int:
        division = divide(target_probs, draft_probs, drawn)
        for token in drawn:
            if generator.bernoulli(division.probability(target_probs[token], draft_probs[token])):
                return token
        return generator.choice(division.residual)

    return solver(solve)


def without_gamma(target_probs: Row, draft_probs: Row, drawn: Sequence[int]) -> spectr.Division:
    division = spectr.divide(target_probs, draft_probs, len(drawn))
    least = np.minimum(target_probs / division.factor, draft_probs)
    return replace(division, residual=normalised(positive(target_probs - least), target_probs))


def specinfer_without_updates(
    target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator
) -> int:
    for token in drawn:
        if generator.bernoulli(ratio(target_probs[token], draft_probs[token])):
            return token
    return generator.choice(residual(target_probs, draft_probs))


def khisti_judged_by_the_draft(
    target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator
) -> int:
    def meet(one: tuple[Row, int], other: tuple[Row, int]) -> tuple[Row, int]:
        pairing = khisti.match(target_probs, one[0], other[0])
        first = one[1] == other[1] or generator.bernoulli(pairing.beats(one[1], other[1]))
        return pairing.law, one[1] if first else other[1]

    _, winner = khisti.tournament([(draft_probs, token) for token in drawn], meet)
    return naive.solve(target_probs, draft_probs, [winner], generator)


def ends_with_the_row_before(
    tree: DrawnTree, target_probs: Rows, draft_probs: Rows, generator: RandomGenerator
) -> Accepted:
    """Draws the token after an accepted leaf from the row of the leaf's parent."""

    def choose(node: int) -> int:
        if tree.children[node]:
            return naive.solve(target_probs[node], draft_probs[node], tree.drawn(node), generator)
        return generator.choice(target_probs[tree.parents[node]])

    return descend(tree, choose)


def stopping(stops: Stops, change: Callable[[list[Stop]], list[Stop]] = list) -> Verify:
    return partial(bottom_up, lambda *given: change(stops(*given)))


def block_weights(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[Stop]:
    """The verifier block with acceptance probability w, a literal reading of the paper's section 3.1."""
    found = block_stops(tree, target_probs, draft_probs)
    return [replace(stop, probability=1 / stop.removed if stop.removed else stop.probability) for stop in found]


def block_until_refused(tree: DrawnTree, target_probs: Rows, draft_probs: Rows, generator: RandomGenerator) -> Accepted:
    """The verifier block from the root on, up to the first refusal."""
    last, *others = reversed(block_stops(tree, target_probs, draft_probs))
    for stop in others:
        if not generator.bernoulli(stop.probability):
            break
        last = stop
    after = residual(target_probs[last.node], draft_probs[last.node], last.removed)
    return tree.path(last.node), generator.choice(after)


def corrected_alike(found: list[Stop]) -> list[Stop]:
    """The residual of naive at every inner node."""
    return [replace(stop, removed=min(stop.removed, 1.0)) for stop in found]


def uncorrected(found: list[Stop]) -> list[Stop]:
    return [replace(stop, removed=0.0) for stop in found]


def judging(change: Callable[[NodeSplit, Row, Row, Sequence[int], float], NodeSplit]) -> Stops:
    """The verifier traversal with wrong probabilities of a node."""

    def stops(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[Stop]:
        def judge(node: int, probability: float) -> NodeSplit:
            given = target_probs[node], draft_probs[node], tree.drawn(node)
            return change(split_node(*given, probability), *given, probability)

        return list(post_order(tree, judge))

    return stops


def of_refused_draft(
    found: NodeSplit, target_probs: Row, draft_probs: Row, drawn: Sequence[int], probability: float
) -> NodeSplit:
    """Remaining probability divided by 1 - q of the refused token, as in public code."""
    slots, removed, total = [], 0.0, 1.0
    for token in drawn:
        left = max(0.0, target_probs[token] - removed * draft_probs[token])
        slots.append(ratio(probability * left / total, draft_probs[token]) if probability > 0 and total > 0 else 0.0)
        if slots[-1] > 0 or (probability > 0 and total > 0):
            removed += total / probability
            rest = float(positive(target_probs - removed * draft_probs).sum())
            probability, total = ratio(probability * rest / total, 1 - draft_probs[token]), rest
    return NodeSplit(slots, probability, removed) if drawn else found


def unweighted(
    split: NodeSplit,  # noqa: ARG001 - signature required by `judging`
    target_probs: Row,
    draft_probs: Row,
    drawn: Sequence[int],
    probability: float,
) -> NodeSplit:
    """Judges each node as if the path to it had probability 1."""
    return replace(split_node(target_probs, draft_probs, drawn, 1.0), probability=probability)


def distinct_draws(verify: Verify) -> Verify:
    """Counts each child once, even if it was drawn several times."""

    def wrong(tree: DrawnTree, target_probs: Rows, draft_probs: Rows, generator: RandomGenerator) -> Accepted:
        once = replace(tree, children=tuple(tuple(dict.fromkeys(drawn)) for drawn in tree.children))
        return verify(once, target_probs, draft_probs, generator)

    return wrong


def shallow_first(found: list[Stop]) -> list[Stop]:
    *others, root = found
    return [*others[::-1], root]


WRONG = [
    Wrong("accepts with q / p", solver(accepts_by_inverse_ratio)),
    Wrong("accepts every first draw", solver(accepts_all)),
    Wrong("draws from the target after a refusal", naive_then(lambda target, _: target)),
    Wrong("draws from (q - p)+ after a refusal", naive_then(lambda target, draft: residual(draft, target))),
    Wrong("takes the most probable token after a refusal", naive_then(most_probable)),
    Wrong("draws the last token from the row before", ends_with_the_row_before),
    Wrong("draws from the draft", solver(lambda _, draft, __, generator: generator.choice(draft))),
    Wrong("spectr: a residual without gamma", spectr_in(without_gamma)),
    Wrong("specinfer: one residual for all draws", solver(specinfer_without_updates)),
    Wrong("khisti: judged by the draft's row", solver(khisti_judged_by_the_draft)),
    Wrong("block: coins with w", stopping(block_weights), CHAIN),
    Wrong("block: no coin after one that refused", block_until_refused, CHAIN),
    Wrong("block: no residual", stopping(block_stops, uncorrected), CHAIN),
    Wrong("traversal: divided by 1 - q", stopping(judging(of_refused_draft))),
    Wrong("traversal: paths not weighted", stopping(judging(unweighted))),
    Wrong("traversal: no residual", stopping(traversal_stops, uncorrected)),
    Wrong("traversal: the residual of naive", stopping(traversal_stops, corrected_alike)),
    Wrong("traversal: the shallow first", stopping(traversal_stops, shallow_first)),
    Wrong("traversal: duplicates left out", distinct_draws(stopping(traversal_stops))),
]

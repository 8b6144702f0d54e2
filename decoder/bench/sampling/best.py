"""Which shape serves a verifier best, by what was expected of it at the roots of some texts. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from decoder.bench.sampling.asked import Asked, Contest, Place
from decoder.bench.sampling.log import Expected
from decoder.draft.delayed_shape import DelayedTree

Aim: TypeAlias = Callable[[DelayedTree, float], float]
"""(shape, its block efficiency) -> what is to be large."""


def tokens_of(asked: Asked, records: Sequence[Expected], contest: Contest) -> dict[DelayedTree, float]:
    """Block efficiency of each shape that is open to a contest: the mean over all roots of these texts."""
    roots = [record.roots for record in records]
    means = np.average([record.tokens[contest.verifier] for record in records], axis=0, weights=roots).tolist()
    shapes = zip(asked.shapes(contest.verifier), means, strict=True)
    return {shape: mean for shape, mean in shapes if asked.belongs(shape, contest)}


def best_shape(asked: Asked, records: Sequence[Expected], contest: Contest, aim: Aim) -> tuple[DelayedTree, float]:
    """The shape that serves an aim best on these texts, and its block efficiency there."""
    return max(tokens_of(asked, records, contest).items(), key=lambda one: aim(*one))


def block_efficiency(asked: Asked, records: Iterable[Expected], contest: Contest, aim: Aim) -> dict[Place, float]:
    """Block efficiency on each text, with the best shape for its setting and task.

    The shape for one half of the prompts is the best on the other half, so that a contest with many shapes gains
    nothing by their number alone; where there is one prompt, it is the best on that.
    """
    found: dict[Place, float] = {}
    for cell in _cells(records).values():
        halves = [cell[::2], cell[1::2]] if len(cell) > 1 else [cell, cell]
        for judged, chosen_on in (halves, halves[::-1]):
            shape, _ = best_shape(asked, chosen_on, contest, aim)
            at = asked.shapes(contest.verifier).index(shape)
            found |= {record.place: record.tokens[contest.verifier][at] for record in judged}
    return found


def _cells(records: Iterable[Expected]) -> Mapping[tuple[int, str], list[Expected]]:
    cells: dict[tuple[int, str], list[Expected]] = {}
    for record in sorted(records, key=lambda record: record.place):
        cells.setdefault(record.place[:2], []).append(record)
    return cells

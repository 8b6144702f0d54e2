"""Best tree shape for a verifier, chosen by expected block efficiency at the roots of given texts.

All functions are pure.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from decoder.draft.delayed_shape import DelayedTree
from dynatui.lab.bench.sampling.log import Expected
from dynatui.lab.bench.sampling.request import Contest, Place, SamplingRequest

Aim: TypeAlias = Callable[[DelayedTree, float], float]
"""Function that takes a tree shape and its block efficiency, and returns the value that the best shape maximises."""


def tokens_of(request: SamplingRequest, records: Sequence[Expected], contest: Contest) -> dict[DelayedTree, float]:
    """Expected block efficiency of each shape that a contest allows: mean over all roots of the texts in `records`."""
    roots = [record.roots for record in records]
    means = np.average([record.tokens[contest.verifier] for record in records], axis=0, weights=roots).tolist()
    shapes = zip(request.shapes(contest.verifier), means, strict=True)
    return {shape: mean for shape, mean in shapes if request.belongs(shape, contest)}


def best_shape(
    request: SamplingRequest, records: Sequence[Expected], contest: Contest, aim: Aim
) -> tuple[DelayedTree, float]:
    """Shape that maximises `aim` on the texts in `records`, and the shape's block efficiency on these texts."""
    return max(tokens_of(request, records, contest).items(), key=lambda one: aim(*one))


def block_efficiency(
    request: SamplingRequest, records: Iterable[Expected], contest: Contest, aim: Aim
) -> dict[Place, float]:
    """Expected block efficiency of each text, with the best shape for its sampling setting.

    The shape for one half of the prompts is chosen on the other half (cross-validation), so that a contest gains no
    advantage merely from a larger number of shapes. With a single prompt, the shape is chosen on that prompt.
    """
    settings: dict[int, list[Expected]] = {}
    for record in records:
        settings.setdefault(record.place.sampling, []).append(record)
    efficiency: dict[Place, float] = {}
    for all_ in settings.values():
        halves = [[record for record in all_ if record.place.prompt % 2 == half] for half in (0, 1)]
        for judged, others in (halves, halves[::-1]):
            shape, _ = best_shape(request, others or all_, contest, aim)
            at = request.shapes(contest.verifier).index(shape)
            efficiency |= {record.place: record.tokens[contest.verifier][at] for record in judged}
    return efficiency

"""Best tree shape for a verifier, chosen by expected block efficiency at the roots of given texts.

An `Aim` is an objective: a function of a tree shape and its block efficiency that the best shape maximises. All
functions are pure.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from decoder.draft.delayed_shape import DelayedTree
from dynatui.lab.bench.sampling.log import Expected, Header
from dynatui.lab.bench.sampling.request import Contest, SamplingRequest, TextKey

Aim: TypeAlias = Callable[[DelayedTree, float], float]
COUPLED_METHODS = ("dynatree", "fixed", "linear")
"""Methods for which draft and target sample with the same Gumbel noise; they run with their default parameters."""


def for_tokens(_shape: DelayedTree, tokens: float) -> float:
    return tokens


def for_speed(header: Header) -> Aim:
    """Aim that maximises block efficiency divided by the expected time of a round's forward passes."""
    return lambda shape, tokens: tokens / header.costs.seconds(shape)


def best_shape(
    request: SamplingRequest, records: Sequence[Expected], contest: Contest, aim: Aim
) -> tuple[DelayedTree, float]:
    """Shape that maximises `aim`, and the shape's expected block efficiency: the mean over all roots in `records`."""
    roots = [record.roots for record in records]
    means = np.average([record.tokens[contest.verifier] for record in records], axis=0, weights=roots).tolist()
    shapes = zip(request.shapes(contest.verifier), means, strict=True)
    return max((each for each in shapes if request.belongs(each[0], contest)), key=lambda each: aim(*each))


def block_efficiency(
    request: SamplingRequest, records: Iterable[Expected], contest: Contest, aim: Aim
) -> dict[TextKey, float]:
    """Expected block efficiency of each text, with the best shape for its sampling setting.

    The shape for one half of the prompts is chosen on the other half (cross-validation), so that a contest with more
    shapes has no advantage from the choice alone. With a single prompt, the shape is chosen on this prompt.
    """
    efficiency: dict[TextKey, float] = {}
    for all_ in by_sampling(records).values():
        halves = [[record for record in all_ if record.place.prompt % 2 == half] for half in (0, 1)]
        for judged, others in (halves, halves[::-1]):
            shape, _ = best_shape(request, others or all_, contest, aim)
            efficiency |= {record.place: tokens_of(request, record, contest, shape) for record in judged}
    return efficiency


def tokens_of(request: SamplingRequest, record: Expected, contest: Contest, shape: DelayedTree) -> float:
    return record.tokens[contest.verifier][request.shapes(contest.verifier).index(shape)]


def by_sampling(records: Iterable[Expected]) -> dict[int, list[Expected]]:
    settings: dict[int, list[Expected]] = {}
    for record in records:
        settings.setdefault(record.place.sampling, []).append(record)
    return settings


def chosen(header: Header, records: Sequence[Expected]) -> dict[Contest, DelayedTree]:
    """Shape to decode with, for each contest: the shape with the highest expected speed on the texts in `records`."""
    request = header.request
    return {each: best_shape(request, records, each, for_speed(header))[0] for each in request.contests()}


def contender_name(contest: Contest, shape: DelayedTree | None) -> str:
    """Name of the contender with the contest's verifier and with `shape`, or with a selector if `shape` is None.
    Several contests can have the same contender.
    """
    return f"{contest.verifier} {f'{shape.k},{shape.l1},{shape.l2}' if shape else contest.drafting}"

"""Speed-up over running requests by what a watched server has shown."""

from collections.abc import Mapping
from functools import lru_cache

from decoder.errors import ConfigError
from dynatui.servers.attach.course import Cell
from dynatui.servers.attach.events import Promise, PromisedChain
from dynatui.servers.load import LoadCurve, chain, fitted
from dynatui.servers.profile_file import StepPoint

_LEAST_STREAMS, _MOST_STREAMS = 8, 1024


def live_curve(promise: Promise, cells: Mapping[int, Cell], k: int | None) -> LoadCurve | None:
    """With the advised numbers of drafted tokens, or if unknown the fastest; None before step times with and without
    drafts are known.
    """
    points = tuple(
        StepPoint(running=cell.running, k=cell.span.drafted_per_round, step_s=cell.step_s, steps=cell.steps)
        for cell in cells.values()
        if cell.step_s
    )
    return _curve(promise.drafts[promise.draft], promise.advised, (*promise.plain, *points), k)


@lru_cache(maxsize=1)
def _curve(
    chains: tuple[PromisedChain, ...],
    advised: tuple[tuple[int, int, int], ...],
    points: tuple[StepPoint, ...],
    k: int | None,
) -> LoadCurve | None:
    try:
        fit = fitted(points)
    except ConfigError:
        return None
    streams = tuple(range(1, 1 + int(min(_MOST_STREAMS, max(_LEAST_STREAMS, 2 * fit.streams[1])))))

    def speedups(drafted: int) -> tuple[float, ...]:
        length = 1 + sum(chains[drafted - 1].rates)
        return tuple(length / fit.costs.break_even(each, chain(drafted)) for each in streams)

    lines = {drafted: speedups(drafted) for drafted in range(1, len(chains) + 1)}
    plain = (1.0,) * len(streams)
    best = tuple(max(each) for each in zip(plain, *lines.values(), strict=True))
    if advised:
        numbers = [next((n for least, most, n in advised if least <= each <= most), 0) for each in streams]
        best = tuple(lines.get(number, plain)[place] for place, number in enumerate(numbers))
    shown = {1, k or 1, *(number for _, _, number in advised)} & lines.keys()
    return LoadCurve(streams, {drafted: lines[drafted] for drafted in sorted(shown)[:4]}, best)

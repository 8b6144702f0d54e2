"""Speed-up by number of running requests, from step times of a watched server and acceptance predicted by a profile."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from decoder.errors import ConfigError
from dynatui.servers.attach.course import Span
from dynatui.servers.attach.events import Promise, PromisedChain
from dynatui.servers.load import LoadCurve, chain, fitted
from dynatui.servers.profile_file import StepPoint

_LEAST_STREAMS, _MOST_STREAMS = 8, 1024


def live_curve(promise: Promise, by_load: Mapping[int, Span], k: int | None) -> LoadCurve | None:
    """The speed-up with the advised numbers of drafted tokens or, if they are unknown, with the fastest number at each
    load. None until step times with two different numbers of drafted tokens are known.
    """
    points = tuple(
        StepPoint(running=span.timed_running, k=span.drafted_per_round, step_s=span.step_s, steps=span.timed)
        for span in by_load.values()
        if span.step_s
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
    streams = range(1, 1 + int(min(_MOST_STREAMS, max(_LEAST_STREAMS, 2 * fit.streams[1]))))
    lines = np.ones((1 + len(chains), len(streams)))
    for drafted, promised in enumerate(chains, 1):
        lines[drafted] = fit.costs.speedups(1 + sum(promised.rates), chain(drafted), streams)
    best = lines.max(axis=0)
    if advised:
        numbers = [next((k for least, most, k in advised if least <= each <= most), 0) for each in streams]
        best = lines[[number if number < len(lines) else 0 for number in numbers], np.arange(len(streams))]
    shown = sorted({1, k or 1, *(number for _, _, number in advised)} & set(range(1, len(lines))))
    return LoadCurve(tuple(streams), {each: tuple(lines[each].tolist()) for each in shown[:4]}, tuple(best.tolist()))

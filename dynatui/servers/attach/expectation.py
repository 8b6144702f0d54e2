"""Derives from a profile the figures that a watched server is predicted to report (the promise), and its speed-ups."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from decoder.analysis.interval import COVERAGE
from decoder.errors import ConfigError, quoted, shortened
from dynatui.servers.advice import advised as advice_for
from dynatui.servers.attach.course import Span
from dynatui.servers.attach.diagnosis import UNKNOWN_EFFECT
from dynatui.servers.attach.events import LARGEST, LONGEST_NAME, MOST_DRAFTS, Promise, PromisedChain
from dynatui.servers.attach.servers import Kind
from dynatui.servers.costs import LoadCurve, fitted, medians, source
from dynatui.servers.costs import chain as chain_round
from dynatui.servers.engines import ENGINES
from dynatui.servers.profile_file import Chain, DraftProfile, Profile, StepPoint

ANY_LOAD = 2**32

Advised: TypeAlias = tuple[tuple[int, int, int], ...]
"""(least, most running requests, K), ascending."""


def promises(
    path: Path,
    profile: Profile,
    draft: str | None,
    advised: Advised | None,
    plain: Iterable[StepPoint],
    p_min: float | None = None,
) -> Callable[[Kind, float], Promise]:
    """Returns a function (kind of server, seconds since the start) -> promise.

    `draft` is the deployed draft (None: the only draft of the profile), `advised` the deployed numbers of drafted
    tokens (None: those that the profile's costs suggest), `plain` step times of the server without drafts. Raises
    ConfigError if the draft, or its acceptance with `p_min`, is unknown.
    """
    names = list(profile.drafts)[:MOST_DRAFTS]
    listed = ", ".join(map(shortened, names))
    if not names:
        raise ConfigError(f"{shortened(path)} has no draft; measure one with dynatui profile")
    if draft is None and len(names) > 1:
        raise ConfigError(f"{shortened(path)} has several drafts; name the server's with --deployed NAME: {listed}")
    name = names[0] if draft is None else draft
    if name not in names:
        raise ConfigError(f"--deployed is {quoted(name)}; give one of the profile's drafts: {listed}")
    known = [each.p_min for each in profile.drafts[name].confidence]
    if p_min is not None and p_min not in known:
        given = ", ".join(f"{each:g}" for each in known) or "none"
        raise ConfigError(f"--p-min is {p_min:g}; the profile has {given}")
    drafts = {each[:LONGEST_NAME]: _chains(profile.drafts[each], p_min) for each in names}
    steps, alone = tuple(medians(plain, per_octave=2)), replace(profile, drafts={name: profile.drafts[name]})
    promise = Promise(t=0.0, profile=path.name[:LONGEST_NAME], draft=name[:LONGEST_NAME], drafts=drafts, plain=steps)
    return lambda kind, t: replace(promise, t=t, advised=_advised(alone, kind) if advised is None else advised)


def _advised(profile: Profile, kind: Kind) -> Advised:
    """The default advice of `dynatui advise`; empty if costs are unknown, if no advice exists for this kind of server,
    or if no draft pays.
    """
    engine = next((each for each in ENGINES.values() if each.title == kind.title), None)
    if engine is None or profile.costs is None:
        return ()
    with suppress(ConfigError):
        deployment = advice_for(profile, source(profile), engine, (1, 64)).deployment
        if deployment is not None:
            bands = [(band.first, band.last, band.k) for band in deployment.bands] or [(1, ANY_LOAD, deployment.k)]
            first, _, k = bands.pop()
            return (*bands, (first, ANY_LOAD, k))
    return ()


def promised_chain(chain: Chain) -> PromisedChain:
    """The promise without rounds that draft nothing, which servers do not count. The design effect is the variance of
    L-bar over prompts, divided by the variance for the same number of independent rounds.
    """
    rates, rounds = chain.of_drafts, chain.rounds * chain.drafting
    spread = sum((2 * place - 1) * rate for place, rate in enumerate(rates, 1)) - sum(rates) ** 2
    effect = UNKNOWN_EFFECT
    if chain.length_interval is not None:
        low, high = chain.length_interval
        width = 2 * NormalDist().inv_cdf((1 + COVERAGE) / 2)  # of the interval, in standard errors
        error = (high - low) / chain.drafting / width
        effect = max(1.0, rounds * error**2 / spread) if spread > 0 else 1.0
    return PromisedChain(
        rates=rates,
        rounds=min(LARGEST, rounds / effect),
        design_effect=min(LARGEST, effect),
        drafted=sum(chain.drafted) / chain.drafting if chain.drafted else float(len(rates)),
    )


def _chains(draft: DraftProfile, p_min: float | None) -> tuple[PromisedChain, ...]:
    """Promises for chains of 1, 2, ... tokens; with `p_min`, chains end before a less probable token, and `drafted` is
    a lower bound for chains shorter than the measured ones.
    """
    chains = [promised_chain(draft.at(k)) for k in range(1, draft.longest + 1)]
    stopped = next((each for each in draft.confidence if each.p_min == p_min), None)
    if stopped is None:
        return tuple(chains)
    survival, drafted = stopped.survival, stopped.drafted
    cut = enumerate(chains[: len(survival)], 1)
    return tuple(replace(chain, rates=survival[:k], drafted=drafted * k / len(survival)) for k, chain in cut)


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
    chains: tuple[PromisedChain, ...], advised: Advised, points: tuple[StepPoint, ...], k: int | None
) -> LoadCurve | None:
    try:
        fit = fitted(points)
    except ConfigError:
        return None
    streams = range(1, 1 + int(min(1024, max(8, 2 * fit.streams[1]))))  # up to twice the largest observed load
    lines = np.ones((1 + len(chains), len(streams)))
    for drafted, promised in enumerate(chains, 1):
        lines[drafted] = fit.costs.speedups(1 + sum(promised.rates), chain_round(drafted), streams)
    best = lines.max(axis=0)
    if advised:
        numbers = [next((k for least, most, k in advised if least <= each <= most), 0) for each in streams]
        best = lines[[number if number < len(lines) else 0 for number in numbers], np.arange(len(streams))]
    shown = sorted({1, k or 1, *(number for _, _, number in advised)} & set(range(1, len(lines))))
    return LoadCurve(tuple(streams), {each: tuple(lines[each].tolist()) for each in shown[:4]}, tuple(best.tolist()))

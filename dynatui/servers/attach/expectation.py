"""What a profile of prompts promises of a server, as servers count."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import NormalDist, median

from decoder.analysis.interval import COVERAGE
from decoder.errors import ConfigError, quoted, shortened
from dynatui.servers.attach.course import load_class
from dynatui.servers.attach.diagnosis import UNKNOWN_EFFECT
from dynatui.servers.attach.events import LARGEST, LONGEST_NAME, MOST_DRAFTS, Promise, PromisedChain
from dynatui.servers.profile_file import Chain, DraftProfile, Profile, StepPoint

_HALF = NormalDist().inv_cdf((1 + COVERAGE) / 2)
"""Half the width of an interval in standard errors."""

Advised = Sequence[tuple[int, int, int]]
"""(least, most running requests, K)."""


def promise(path: Path, profile: Profile, draft: str, advised: Advised, plain: Iterable[StepPoint]) -> Promise:
    """`plain` are step times of the server without drafts."""
    drafts = list(profile.drafts.items())[:MOST_DRAFTS]
    return Promise(
        profile=path.name[:LONGEST_NAME],
        draft=draft[:LONGEST_NAME],
        drafts={name[:LONGEST_NAME]: _chains(each) for name, each in drafts},
        advised=tuple((least, min(most, int(LARGEST)), k) for least, most, k in advised),
        plain=tuple(_medians(plain)),
    )


def deployed(profile: Profile, path: Path, name: str | None) -> str:
    """The draft of a profile that is named, or else the only one; raises ConfigError."""
    names = list(profile.drafts)
    if not names:
        raise ConfigError(f"{shortened(path)} has no draft; measure one with dynatui profile", "expect")
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        listed = ", ".join(map(shortened, names))
        given = "--expect is a profile of several drafts" if name is None else f"--deployed is {quoted(name)}"
        raise ConfigError(f"{given}; name one of its drafts: --deployed NAME ({listed})", "deployed")
    return name


def promised_chain(chain: Chain) -> PromisedChain:
    """Rounds without a draft do not count on servers. The design effect is the variance of L-bar over prompts, relative
    to that of as many independent rounds.
    """
    first = chain.drafted[0] if chain.drafted and chain.drafted[0] else 1.0
    rates = tuple(min(1.0, share / first) for share in chain.survival)
    rounds = chain.rounds * first
    spread = sum((2 * place - 1) * rate for place, rate in enumerate(rates, 1)) - sum(rates) ** 2
    effect = UNKNOWN_EFFECT
    if chain.length_interval is not None:
        low, high = chain.length_interval
        error = (high - low) / first / (2 * _HALF)
        effect = max(1.0, rounds * error**2 / spread) if spread > 0 else 1.0
    return PromisedChain(
        rates=rates,
        rounds=min(LARGEST, rounds / effect),
        design_effect=min(LARGEST, effect),
        drafted=sum(chain.drafted) / first if chain.drafted else float(len(rates)),
    )


def _chains(draft: DraftProfile) -> tuple[PromisedChain, ...]:
    return tuple(promised_chain(draft.at(k)) for k in range(1, draft.longest + 1))


def _medians(points: Iterable[StepPoint]) -> Iterable[StepPoint]:
    """Of the points at each load."""
    groups = dict[int, list[StepPoint]]()
    for point in points:
        groups.setdefault(load_class(point.running), []).append(point)
    for _, group in sorted(groups.items()):
        running, step_s = (median(getattr(each, name) for each in group) for name in ("running", "step_s"))
        yield StepPoint(running=running, k=0, step_s=step_s, steps=math.fsum(each.steps for each in group))

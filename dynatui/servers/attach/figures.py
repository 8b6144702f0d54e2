"""Parses an untrusted metrics page in Prometheus' text format, and turns pages into a server's figures.

Only lines of the wanted metrics are parsed, because a page has thousands of lines and is polled every second.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from msgspec import structs
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from decoder.errors import first_line, quoted
from dynatui.servers.attach.address import without_query
from dynatui.servers.attach.course import Sums, whole
from dynatui.servers.attach.events import (
    LARGEST,
    LONGEST_NAME,
    MOST_COUNTED,
    MOST_MODELS,
    MOST_POSITIONS,
    Drafting,
    Figures,
    Load,
    Reading,
    Server,
    Wasted,
)
from dynatui.servers.attach.servers import Kind, Names

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""(name, value) of each label, sorted by name."""
Series: TypeAlias = Mapping[Labels, float]
Page: TypeAlias = Mapping[str, Series]
"""Name of a metric -> its series. Names lack the suffix `_total`, which only some exporters append."""

MOST_LINES = 20_000
"""Largest number of lines to parse; more would take too long for one poll."""


class PageError(Exception):
    """A metrics page cannot be read; the message is one line with the reason and the remedy."""


class NotMetricsError(PageError):
    """The page has no readable metrics; the server's metrics page may have another URL."""


def lines_of(text: str) -> Sequence[str]:
    """Lines of a page; raises a NotMetricsError if the page is empty, truncated or in another format."""
    opening = text.lstrip()[:1]
    if not opening:
        raise NotMetricsError("the page is empty; some servers have no metrics before their first request")
    if opening == "<":
        raise NotMetricsError("the page is HTML, not metrics; give the address of the server itself")
    if opening in "{[":
        with suppress(ValueError, RecursionError):  # the text is in another format after all
            json.loads(text)
            raise NotMetricsError("the page is JSON, not metrics; give the address of the server's metrics")
    if not text.endswith("\n"):
        raise NotMetricsError("the page is cut off within its last line")
    return text.split("\n")


def parsed(lines: Sequence[str], counters: tuple[str, ...], gauges: tuple[str, ...] = ()) -> Page:
    """The series whose names begin with an entry of `counters` or `gauges`.

    Ignores creation times, values outside 0 to `MOST_COUNTED`, and counters that the page declares as gauges. Raises a
    NotMetricsError for a malformed line, or for more than `MOST_LINES` lines to parse.
    """
    page, selected = dict[str, dict[Labels, float]](), [line for line in lines if line.startswith(counters + gauges)]
    momentary = {line.split()[2] for line in lines if line.startswith("# TYPE ") and line.split()[3:] == ["gauge"]}
    if len(selected) > MOST_LINES:
        found = f"{len(selected)} lines with metrics that dynatui reads"
        raise NotMetricsError(f"the page has {found}; the maximum is {MOST_LINES}")
    for family in _families(selected):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")
            counted = name not in counters or sample.name not in momentary
            if counted and not name.endswith("_created") and 0 <= sample.value <= MOST_COUNTED:
                page.setdefault(name, {})[tuple(sorted(sample.labels.items()))] = float(sample.value)
    return page


def require_metrics(lines: Sequence[str]) -> None:
    _families(lines[:1000])  # enough to judge the format


def _families(lines: Sequence[str]) -> list[Metric]:
    try:
        return list(text_string_to_metric_families("\n".join(lines)))
    except (ValueError, IndexError, KeyError) as error:  # from the parser, for a malformed line
        raise NotMetricsError(f"the page is not in a Prometheus format: {quoted(first_line(error))}") from None


@dataclass(frozen=True)
class Counts(Sums):
    """Counts of an interval; None for a count that the server does not report."""

    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    generated: int | None = None
    accepted_at: tuple[int, ...] = ()
    drafted_at: tuple[int, ...] = ()
    """`accepted_at` and `drafted_at`: counts by draft position; empty if not reported."""
    engine_steps: int | None = None
    latency_s: float | None = None
    timed: int | None = None
    """Number of tokens whose times are added up in `latency_s`."""
    outputs: int | None = None
    """Number of steps of single requests (one or several tokens each) whose times are added up in `latency_s`."""


def restarted(kind: Kind, before: Page, after: Page) -> bool:
    """Whether any counter has decreased, as a restart of the server sets it to 0."""
    pairs = ((before.get(name, {}), after.get(name, {})) for name in kind.counters)
    return any(value < earlier[labels] for earlier, now in pairs for labels, value in now.items() if labels in earlier)


def counted(kind: Kind, before: Page, after: Page) -> Counts:
    def grown(names: Names) -> int | None:
        if not names or any(name not in after for name in names):
            return None
        return whole(sum(increase(before.get(name, {}), after[name]) for name in names))

    def by_position(name: str) -> tuple[int, ...]:
        earlier, later = (_split(page.get(name, {}), kind.position) for page in (before, after))
        places = range(max(later, default=-1) + 1)
        return tuple(whole(increase(earlier.get(place, {}), later.get(place, {}))) for place in places)

    drafted_at, latency = by_position(kind.drafted_at), after.get(kind.latency)
    return Counts(
        drafts=grown(kind.drafts) if kind.drafts else next(iter(drafted_at), None),
        drafted=grown(kind.drafted),
        accepted=grown(kind.accepted),
        generated=grown(kind.generated),
        accepted_at=by_position(kind.accepted_at),
        drafted_at=drafted_at,
        engine_steps=grown(kind.engine_steps),
        latency_s=None if latency is None else increase(before.get(kind.latency, {}), latency),
        timed=grown(kind.timed or kind.generated),
        outputs=grown(kind.outputs),
    )


def remembered(before: Page, after: Page) -> Page:
    """Latest value of every series. A series missing from `after`, as of a stopped replica, keeps its value. But if its
    metric gets a new series, all missing series of the metric are dropped, so that the memory stays bounded.
    """
    pairs = {name: (before.get(name, {}), after.get(name, {})) for name in {**before, **after}}
    return {name: now if now.keys() - old.keys() else {**old, **now} for name, (old, now) in pairs.items()}


def increase(before: Series, after: Series) -> float:
    """Increase of a counter. New series are assumed to continue those that disappeared, so their sums are compared."""
    stayed = sum(_step(before[labels], value) for labels, value in after.items() if labels in before)
    removed = sum(value for labels, value in before.items() if labels not in after)
    added = sum(value for labels, value in after.items() if labels not in before)
    return stayed + _step(removed, added)


def _step(before: float, after: float) -> float:
    return after - before if after >= before else after


def _split(series: Series, label: str) -> Mapping[int, Series]:
    places = dict[int, dict[Labels, float]]()
    for labels, value in series.items():
        text = dict(labels).get(label, "")
        if text.isdecimal() and len(text) <= len(str(MOST_POSITIONS)) and int(text) < MOST_POSITIONS:
            places.setdefault(int(text), {})[labels] = value
    return places


@dataclass(frozen=True)
class Gauges:
    length: float | None = None
    rate: float | None = None
    speed: float | None = None
    drafting: Drafting | None = None
    load: Load | None = None


def gauges(kind: Kind, page: Page) -> Gauges:
    """Gauges of a page: `length` and `rate` are means over the engines that have drafted, `speed` and the requests of
    `load` are sums over all engines. Of `drafting`, `steps` and `draft_tokens` are known only if all engines have
    the same value.
    """

    def mean(name: str, least: float, most: float) -> float | None:
        values = [value for value in _by_engine(kind, page.get(name, {})) if least <= value <= most]
        return sum(values) / len(values) if values else None

    def total(name: str) -> float | None:
        return min(LARGEST, sum(_by_engine(kind, page[name]))) if name in page else None

    def same(name: str) -> int | None:
        sizes = set(_by_engine(kind, page.get(name, {}))) - {0.0}
        return round(sizes.pop()) if len(sizes) == 1 else None

    length = mean(kind.length, 1, LARGEST)
    drafting = Drafting(
        steps=same(kind.steps),
        draft_tokens=same(kind.draft_tokens),
        cap_length=mean(kind.cap_length, 1, LARGEST),
        block_accept_length=mean(kind.block_length, 1, LARGEST),
    )
    load = Load(running=total(kind.running), waiting=total(kind.waiting), cache_usage=mean(kind.cache, 0, 1))
    return Gauges(
        length=length,
        rate=None if length is None else mean(kind.rate, 0, 1),  # before the first draft, the gauge is 0: no rate
        speed=total(kind.speed),
        drafting=None if drafting == Drafting() else drafting,
        load=None if load == Load() else load,
    )


def with_drafts(kind: Kind, counts: Counts, drafts: int | None) -> Counts:
    """Derives missing numbers of drafted and accepted tokens from rounds of `drafts` tokens each."""
    rounds, generated = counts.drafts, counts.generated
    if kind.drafted or not kind.rounds_generate or rounds is None or generated is None or drafts is None:
        return counts
    drafted = whole(rounds * drafts)
    return replace(counts, drafted=drafted, accepted=max(0, min(generated - rounds, drafted)))


def _by_engine(kind: Kind, gauge: Series) -> Sequence[float]:
    """Value of each engine, the maximum over its processes."""
    engines = dict[Labels, float]()
    for labels, value in gauge.items():
        engine = tuple(label for label in labels if label[0] not in kind.ranks)
        engines[engine] = max(value, engines.get(engine, 0.0))
    return tuple(engines.values())


def figures(kind: Kind, counts: Counts, seconds: float, now: Gauges | None = None) -> Figures:
    """Figures of an interval; a gauge in `now`, read at the interval's end, takes precedence over counts."""
    gauges = now or Gauges()
    length = _ratio(counts.generated, counts.drafts) if kind.rounds_generate else round_length(kind, counts)
    drafted_at = counts.drafted_at or (counts.drafts,) * len(counts.accepted_at)
    return Figures(
        seconds=seconds,
        drafts=counts.drafts,
        drafted=counts.drafted,
        accepted=counts.accepted,
        generated=counts.generated,
        tokens_per_round=_first_known(gauges.length, length),
        acceptance_rate=_first_known(gauges.rate, share(counts.accepted, counts.drafted)),
        acceptance_by_position=[*map(share, counts.accepted_at, (*drafted_at, *[None] * len(counts.accepted_at)))],
        accepted_by_position=counts.accepted_at,
        drafted_by_position=counts.drafted_at,
        drafted_per_second=_ratio(counts.drafted, seconds),
        accepted_per_second=_ratio(counts.accepted, seconds),
        tokens_per_second=_first_known(gauges.speed, _ratio(counts.generated, seconds)),
        engine_steps=counts.engine_steps,
        token_latency_s=_ratio(counts.latency_s, counts.timed),
        step_s=_ratio(counts.latency_s, counts.outputs),
    )


def round_length(kind: Kind, counts: Counts) -> float | None:
    return length(counts.accepted if kind.drafts else sum(counts.accepted_at), counts.drafts)


def length(accepted: float | None, drafts: float | None) -> float | None:
    """L-bar: accepted tokens per round, plus the target's own token."""
    more = _ratio(accepted, drafts)
    return None if more is None else min(LARGEST, 1 + more)


def share(part: float | None, whole: float | None) -> float | None:
    """`part` / `whole`, limited to 1: the ratio may be larger if counters change while the metrics page is written."""
    return _ratio(part, whole, 1.0)


def _ratio(part: float | None, whole: float | None, most: float = LARGEST) -> float | None:
    return min(most, part / whole) if part is not None and whole else None


def _first_known(first: float | None, second: float | None) -> float | None:
    return second if first is None else first


ROUNDS, SECONDS = 100, 10.0
"""A batch of intervals is judged once it has at least this many rounds and seconds."""
WASTED_BELOW, PAYING_FROM = 1.1, 1.2
"""Drafts become wasted below `WASTED_BELOW` tokens per round, and remain so below `PAYING_FROM`. A round takes at least
as long as a plain pass and its drafting, so the speed-up is below the tokens per round."""
REJECTED_BELOW, ACCEPTED_FROM = 0.05, 0.06
"""Drafts also become wasted at an acceptance rate below `REJECTED_BELOW` with tokens per round below `LONG_BELOW`, and
remain so at a rate below `ACCEPTED_FROM` with tokens per round below `LONG_FROM`."""
LONG_BELOW, LONG_FROM = 1.35, 1.5
"""More tokens per round need over seven drafted tokens at the rate `REJECTED_BELOW`, over eight at `ACCEPTED_FROM`."""


@dataclass(frozen=True)
class Judgement:
    lot: Counts = field(default_factory=Counts)
    """Counts of the incomplete batch of intervals."""
    begun: float | None = None
    """Start of the incomplete batch; None while the batch is empty."""
    wasted: Counts | None = None
    """Counts since drafts became wasted; None if drafts are not wasted."""
    since: float = 0.0


def judged(kind: Kind, before: Judgement, counts: Counts, begun: float, t: float) -> Judgement:
    """The verdict after an interval from `begun` to `t`; unchanged if the interval has no drafts or unknown counts."""
    if None in (counts.drafts, counts.drafted, counts.accepted) or not (counts.drafts or counts.drafted):
        return before
    lot = before.lot.plus(counts)
    begun = begun if before.begun is None else before.begun
    length = round_length(kind, lot)
    if (lot.drafts or 0) < ROUNDS or t - begun < SECONDS or length is None:
        return replace(before, lot=lot, begun=begun)
    rate = share(lot.accepted, lot.drafted) or 0.0
    if before.wasted is None:
        wasted = length < WASTED_BELOW or (rate < REJECTED_BELOW and length < LONG_BELOW)
        return Judgement(wasted=lot, since=begun) if wasted else Judgement()
    still = length < PAYING_FROM or (rate < ACCEPTED_FROM and length < LONG_FROM)
    return Judgement(wasted=before.wasted.plus(lot), since=before.since) if still else Judgement()


def as_event(kind: Kind, judgement: Judgement) -> Wasted | None:
    if (wasted := judgement.wasted) is None:
        return None
    return Wasted(
        since=judgement.since,
        drafts=wasted.drafts or 0,
        drafted=wasted.drafted or 0,
        accepted=wasted.accepted or 0,
        tokens_per_round=round_length(kind, wasted) or 1.0,
        acceptance_rate=share(wasted.accepted, wasted.drafted) or 0.0,
    )


class History:
    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._server: Server | None = None
        self._drafts: int | None = None

    def read(self, url: str, kind: Kind, lines: Sequence[str], t: float) -> Iterator[Server | Reading]:
        """The events of a metrics page read at `t` seconds; raises a NotMetricsError if the page is malformed."""
        page = parsed(lines, kind.counters, kind.gauges)
        first = kind != self._kind
        if first:
            self._kind, self._page, self._began, self._read_at = kind, page, t, t
            self._total, self._drafts, self._judgement = Counts(), None, Judgement()
        yield from self._introduced(kind, url, page, t)
        anew = restarted(kind, self._page, page)
        now = gauges(kind, page)
        drafting = now.drafting or Drafting()
        drafts = drafting.draft_tokens - 1 if drafting.draft_tokens else drafting.steps
        steady = drafts if self._drafts in (None, drafts) else None
        counts = Counts() if first else with_drafts(kind, counted(kind, self._page, page), steady)
        self._total, self._drafts = self._total.plus(counts), drafts
        seconds = t - self._read_at
        self._judgement = judged(kind, Judgement() if anew else self._judgement, counts, self._read_at, t)
        self._page, self._read_at = page if anew else remembered(self._page, page), t
        yield Reading(
            t=t,
            restarted=anew,
            interval=figures(kind, counts, seconds, now),
            session=figures(kind, self._total, t - self._began),
            drafting=now.drafting,
            load=now.load,
            wasted=as_event(kind, self._judgement),
        )

    def _introduced(self, kind: Kind, url: str, page: Page, t: float) -> Iterator[Server]:
        labels = (dict(label_set) for series in page.values() for label_set in series)
        names = {label_set[kind.model][:LONGEST_NAME] for label_set in labels if kind.model in label_set}
        url, models = without_query(url)[:LONGEST_NAME], sorted(names - {""})[:MOST_MODELS]
        server = Server(t=t, kind=kind.name, url=url, models=models)
        if self._server is None or structs.replace(self._server, t=t) != server:
            self._server = server
            yield server

"""Turns each poll of a server's metrics page, including failed polls, into events; network and clock are arguments."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

from msgspec import structs

import decoder
from dynatui.servers.attach.address import Address, without_query
from dynatui.servers.attach.events import (
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_MODELS,
    Answer,
    Event,
    Gap,
    Opening,
    Reading,
    RequestSent,
    Server,
)
from dynatui.servers.attach.exposition import NotMetricsError, Page, PageError, lines_of, parsed, require_metrics
from dynatui.servers.attach.figures import (
    Counts,
    Judgement,
    as_event,
    counted,
    figures,
    gauges,
    judged,
    remembered,
    restarted,
    with_drafts,
)
from dynatui.servers.attach.servers import KINDS, Kind, recognised


class History:
    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._server: Server | None = None
        self._page: Page = {}
        self._read_at: float | None = None
        self._total, self._began = Counts(), 0.0
        self._drafts: int | None = None
        self._judgement = Judgement()

    def read(self, url: str, kind: Kind, lines: Sequence[str], t: float) -> Iterator[Server | Reading]:
        """The events of a metrics page read at `t` seconds; raises a NotMetricsError if the page is malformed."""
        page = parsed(lines, kind.counters, kind.gauges)
        if kind != self._kind:
            self._kind, self._page, self._read_at = kind, {}, None
            self._total, self._began = Counts(), t
            self._drafts, self._judgement = None, Judgement()
        yield from self._introduced(kind, url, page, t)
        first = self._read_at is None
        anew = restarted(kind, self._page, page)
        now = gauges(kind, page)
        steady = now.drafts if self._drafts in (None, now.drafts) else None
        counts = Counts() if first else with_drafts(kind, counted(kind, self._page, page), steady)
        self._total, self._drafts = self._total.plus(counts), now.drafts
        seconds = 0.0 if self._read_at is None else t - self._read_at
        self._judgement = judged(kind, Judgement() if anew else self._judgement, counts, t - seconds, t)
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
        models = sorted(names - {""})[:MOST_MODELS]
        server = Server(t=t, kind=kind.name, url=without_query(url)[:LONGEST_NAME], models=models)
        if self._server is None or structs.replace(self._server, t=t) != server:
            self._server = server
            yield server


@dataclass(frozen=True)
class Polling:
    address: Address
    interval_s: float = 1.0
    polls: int | None = None
    """Number of polls; None: the session ends only when interrupted."""


def watch(
    plan: Polling,
    page: Callable[[str], str],
    pause: Callable[[float], bool],
    clock: Callable[[], float],
    answers: Callable[[], Iterable[RequestSent | Answer]] = tuple,
    waiting: Callable[[], bool] = bool,
) -> Iterator[Event]:
    """The events of a watched server.

    `page` returns the text at a URL or raises a PageError, `pause` waits and returns whether to stop, `answers` returns
    the requests and answers since its last call, and `waiting` returns whether to continue after `plan.polls` polls.
    """
    began, urls, history = clock(), plan.address.pages, History()
    yield Opening(
        version=decoder.__version__,
        started_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        url=plan.address.base[:LONGEST_NAME],
        interval_s=plan.interval_s,
    )
    for number in count(1):
        try:
            url, kind, lines = first_page(page, urls)
            urls = (url, *(other_page for other_page in plan.address.pages if other_page != url))
            yield from history.read(url, kind, lines, clock() - began)
        except PageError as error:
            yield Gap(t=clock() - began, reason=str(error)[:LONGEST_TEXT])
        yield from (structs.replace(answer, t=clock() - began) for answer in answers())
        elapsed = clock() - began
        next_poll = (elapsed // plan.interval_s + 1) * plan.interval_s
        enough = plan.polls is not None and number >= plan.polls and not waiting()
        if enough or pause(next_poll - elapsed):
            return


def first_page(page: Callable[[str], str], urls: Sequence[str]) -> tuple[str, Kind, Sequence[str]]:
    """(URL, kind of server, lines in the kind's own names) of the first page with metrics of a supported server.

    Raises PageError if the server cannot be reached, the NotMetricsError of the first URL if none has such metrics.
    """
    faults = list[PageError]()
    titles = ", ".join(kind.title for kind in KINDS.values())
    for url in urls:
        try:
            lines = lines_of(page(url))
            if found := recognised(lines):
                return url, *found
            require_metrics(lines)
            where = without_query(url)
            unknown = f"the metrics at {where} do not belong to a supported server; supported: {titles}"
            faults.append(NotMetricsError(unknown))
        except NotMetricsError as error:
            faults.append(error)
    raise faults[0]


def kind_of(page: Callable[[str], str], urls: Sequence[str]) -> Kind | None:
    try:
        return first_page(page, urls)[1]
    except PageError:
        return None

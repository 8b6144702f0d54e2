"""Turns each poll of a server's metrics page, including failed polls, into events; network and clock are arguments."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

from msgspec import structs

import decoder
from dynatui.servers.attach.address import Address, without_query
from dynatui.servers.attach.events import LONGEST_NAME, LONGEST_TEXT, Answer, Event, Gap, Opening, RequestSent
from dynatui.servers.attach.figures import History, NotMetricsError, PageError, lines_of, require_metrics
from dynatui.servers.attach.servers import KINDS, Kind, recognised


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
            unknown = f"the metrics at {without_query(url)} do not belong to a supported server; supported: {titles}"
            faults.append(NotMetricsError(unknown))
        except NotMetricsError as error:
            faults.append(error)
    raise faults[0]


def kind_of(page: Callable[[str], str], urls: Sequence[str]) -> Kind | None:
    with suppress(PageError):
        return first_page(page, urls)[1]
    return None

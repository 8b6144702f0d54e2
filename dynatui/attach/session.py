"""Session of watching a server: its page is polled, and every poll becomes events, gaps included.

No failure of a server ends the session. The functions that send, wait and tell the time are arguments.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

from msgspec import structs

import decoder
from dynatui.attach.address import Address, without_query
from dynatui.attach.events import LONGEST_NAME, LONGEST_TEXT, Answer, Event, Gap, Opening, RequestSent
from dynatui.attach.exposition import NotMetricsError, PageError, lines_of, require_metrics
from dynatui.attach.history import History
from dynatui.attach.servers import KINDS, Kind, recognised


@dataclass(frozen=True)
class Plan:
    """Settings of a session."""

    address: Address
    interval_s: float = 1.0
    polls: int | None = None
    """Number of polls before the session ends; None: no limit."""


def watch(
    plan: Plan,
    page: Callable[[str], str],
    pause: Callable[[float], bool],
    clock: Callable[[], float],
    answers: Callable[[], Iterable[RequestSent | Answer]] = tuple,
    waiting: Callable[[], bool] = bool,
) -> Iterator[Event]:
    """Events of a server.

    Args:
        plan: Server and interval.
        page: The text at a URL; raises a PageError.
        pause: Waits for a number of seconds; returns whether to stop.
        clock: Seconds.
        answers: Requests and answers since its last call.
        waiting: Whether more of them are due; the session does not end before.
    """
    began, urls, history = clock(), plan.address.pages, History()
    yield Opening(
        version=decoder.__version__,
        started_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        url=plan.address.shown[:LONGEST_NAME],
        interval_s=plan.interval_s,
    )
    for number in count(1):
        try:
            url, kind, lines = first_page(page, urls)
            urls = (url, *(each for each in plan.address.pages if each != url))
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
    """URL and lines of the first page with metrics of a supported server.

    Raises:
        PageError: The server cannot be reached, or no page has such metrics; the message then describes the first page.
    """
    faults = list[PageError]()
    for url in urls:
        try:
            lines = lines_of(page(url))
            return url, _kind(url, lines), lines
        except NotMetricsError as error:
            faults.append(error)
    raise faults[0]


def _kind(url: str, lines: Sequence[str]) -> Kind:
    kind = recognised(lines)
    if kind is None:
        require_metrics(lines)
        titles = ", ".join(each.title for each in KINDS.values())
        raise NotMetricsError(f"the metrics at {without_query(url)} are of no server that is known: {titles}")
    return kind


def kind_of(page: Callable[[str], str], urls: Sequence[str]) -> Kind | None:
    """Kind of a server; None where its pages do not show it."""
    try:
        return first_page(page, urls)[1]
    except PageError:
        return None

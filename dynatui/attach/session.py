"""A session of watching a server: polls its metrics page, and makes events of every poll, including failed polls.

No failure of the server ends the session. The functions that send requests, wait and read the clock are parameters.
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
    """Settings of a session: the server's address, the polling interval and the number of polls."""

    address: Address
    interval_s: float = 1.0
    polls: int | None = None
    """Number of polls after which the session ends; None: it ends only when interrupted."""


def watch(
    plan: Plan,
    page: Callable[[str], str],
    pause: Callable[[float], bool],
    clock: Callable[[], float],
    answers: Callable[[], Iterable[RequestSent | Answer]] = tuple,
    waiting: Callable[[], bool] = bool,
) -> Iterator[Event]:
    """The events of a watched server.

    Args:
        plan: Server, polling interval and number of polls.
        page: Function from a URL to the text of its page; raises a PageError.
        pause: Waits for a number of seconds; returns whether to stop.
        clock: Returns the present time in seconds.
        answers: Returns the requests and answers since the previous call.
        waiting: Returns whether an answer has yet to arrive; if so, polling continues beyond the number of polls.
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
    """The first page that has metrics of a supported server: its URL, the kind of server, and its lines with the kind's
    own names.

    Raises:
        PageError: The server cannot be reached.
        NotMetricsError: No page has metrics of a supported server; the message describes the first page.
    """
    faults = list[PageError]()
    for url in urls:
        try:
            return url, *_recognised(url, lines_of(page(url)))
        except NotMetricsError as error:
            faults.append(error)
    raise faults[0]


def _recognised(url: str, lines: Sequence[str]) -> tuple[Kind, Sequence[str]]:
    found = recognised(lines)
    if found is None:
        require_metrics(lines)
        titles = ", ".join(known_kind.title for known_kind in KINDS.values())
        raise NotMetricsError(
            f"the metrics at {without_query(url)} do not belong to a supported server; supported: {titles}"
        )
    return found


def kind_of(page: Callable[[str], str], urls: Sequence[str]) -> Kind | None:
    """The kind of server that these URLs belong to; None if no page could be read or recognised."""
    try:
        return first_page(page, urls)[1]
    except PageError:
        return None

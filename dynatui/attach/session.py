"""A server that is watched: asked for its page again and again, and what comes of it as events, gaps included.

Nothing that a server does ends the session: it is asked again, for ever. Who asks, how long to wait and what time it is
are handed in.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

from msgspec import structs

import decoder
from dynatui.attach.address import Address, without_query
from dynatui.attach.events import LONGEST_NAME, LONGEST_TEXT, Answer, Asked, Event, Gap, Opening
from dynatui.attach.exposition import NotMetricsError, PageError, lines_of, require_metrics
from dynatui.attach.history import History
from dynatui.attach.servers import KINDS, Kind, recognised


@dataclass(frozen=True)
class Plan:
    """How a server is watched."""

    address: Address
    interval_s: float = 1.0
    polls: int | None = None
    """After which the session ends by itself; None: it never does."""


def watch(
    plan: Plan,
    page: Callable[[str], str],
    pause: Callable[[float], bool],
    clock: Callable[[], float],
    answers: Callable[[], Iterable[Asked | Answer]] = tuple,
    waiting: Callable[[], bool] = bool,
) -> Iterator[Event]:
    """What is seen of a server.

    Args:
        plan: Whom to ask, and how often.
        page: The text at a URL; raises a PageError.
        pause: Waits so many seconds; whether to stop.
        clock: Seconds.
        answers: Requests and answers that have come since it was asked last.
        waiting: Whether more of them will come, before which the session does not end by itself.
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
            url, kind, lines = found(page, urls)
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


def found(page: Callable[[str], str], urls: Sequence[str]) -> tuple[str, Kind, Sequence[str]]:
    """The first page that has metrics of a known server, by its URL, with its lines.

    Raises:
        PageError: The server cannot be asked, or no page has such metrics; then it says what the first one is.
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
    """What a server is; None where its pages do not say."""
    try:
        return found(page, urls)[1]
    except PageError:
        return None

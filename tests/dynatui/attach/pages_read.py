"""What a history tells of pages that are read one after another."""

from collections.abc import Sequence

from dynatui.attach.events import Reading, Server
from dynatui.attach.exposition import lines_of
from dynatui.attach.servers import KINDS, Kind, recognised
from dynatui.attach.session import History


def known(text: str) -> tuple[Kind, Sequence[str]]:
    """The kind of server that has this page, and the page's lines."""
    found = recognised(lines_of(text))
    assert found is not None
    return found


def told(*pages: str, kind: str = "", apart_s: float = 1.0) -> list[Server | Reading]:
    """The events of pages, of a kind of server or else of the kind that each page is recognised as."""
    history, events = History(), list[Server | Reading]()
    for number, text in enumerate(pages):
        kind_of_page, lines = (KINDS[kind], lines_of(text)) if kind else known(text)
        events += history.read("http://host/metrics", kind_of_page, lines, number * apart_s)
    return events


def readings(*pages: str, kind: str = "", apart_s: float = 1.0) -> list[Reading]:
    return [event for event in told(*pages, kind=kind, apart_s=apart_s) if isinstance(event, Reading)]

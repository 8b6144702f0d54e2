"""Adds the events of a run to totals and serves the totals: the entry point of this package.

The decoding thread adds events, and another thread reads the totals. The totals are an immutable value that is replaced
as a whole, so neither thread waits. The Prometheus client is imported only if a port is given.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from decoder.events import Event
from dynatui.prometheus.totals import Totals, after


class Exporter:
    """The totals of a run so far, and the URL at which they are served."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.url = ""
        """URL at which the totals are served."""

    def take(self, event: Event) -> None:
        """Adds an event to the totals; to be called by one thread only."""
        self.totals = after(self.totals, event)


@contextmanager
def exporting(port: int | None) -> Iterator[Exporter | None]:
    """Context that yields an exporter, and serves its totals on a port of this machine; port 0 means any free port.

    If `port` is None, the context serves nothing and yields None.

    Raises:
        ConfigError: The port cannot be opened.
    """
    if port is None:
        yield None
        return
    from dynatui.prometheus.server import serving  # noqa: PLC0415 - imports the Prometheus client

    exporter = Exporter()
    with serving(port, lambda: exporter.totals) as exporter.url:
        yield exporter

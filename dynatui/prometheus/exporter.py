"""Adds the events of a run to totals and serves the totals: the entry point of this package.

The decoding thread adds events, and another thread reads the totals. The totals are an immutable value that is replaced
as a whole, so neither thread waits. The Prometheus client is imported only if a port is given.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from decoder.events import Event
from dynatui.prometheus.totals import Totals, after


class Exporter:
    def __init__(self) -> None:
        self.totals = Totals()
        self.url = ""

    def take(self, event: Event) -> None:
        """To be called by one thread only."""
        self.totals = after(self.totals, event)


@contextmanager
def exporting(port: int | None) -> Iterator[Exporter | None]:
    """Serves at a port (0: any free one; None: serves nothing); raises ConfigError if it cannot be opened."""
    if port is None:
        yield None
        return
    from dynatui.prometheus.server import serving  # noqa: PLC0415 - imports the Prometheus client

    exporter = Exporter()
    with serving(port, lambda: exporter.totals) as exporter.url:
        yield exporter

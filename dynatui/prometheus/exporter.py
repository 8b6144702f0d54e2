"""Folds the events of a run into totals and serves them: the entry point of this folder.

The decoding thread adds events; another one reads. Totals are one immutable value that is replaced, so neither waits.
The Prometheus client is imported only where a port is given.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from decoder.events import Event
from dynatui.prometheus.totals import Totals, after


class Exporter:
    """Totals of a run so far."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.url = ""
        """URL of the metrics page."""

    def take(self, event: Event) -> None:
        """Adds an event; called by one thread only."""
        self.totals = after(self.totals, event)


@contextmanager
def exporting(port: int | None) -> Iterator[Exporter | None]:
    """Context that serves an exporter's totals on a port of this machine, 0: any free one; None without a port.

    Raises:
        ConfigError: The port cannot be opened.
    """
    if port is None:
        yield None
        return
    from dynatui.prometheus.server import serving  # noqa: PLC0415 - imports the client of Prometheus

    exporter = Exporter()
    with serving(port, lambda: exporter.totals) as exporter.url:
        yield exporter

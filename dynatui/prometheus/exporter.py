"""Folds the events of a run for whoever serves them, where the user asked for that: the door to this folder.

The thread that decodes takes events in; another one reads. Totals are one value that is replaced as a whole, so neither
waits. Imports nothing of Prometheus before a port is given.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from decoder.events import Event
from dynatui.prometheus.totals import Totals, after


class Exporter:
    """Totals so far."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.url = ""
        """Where they are served."""

    def take(self, event: Event) -> None:
        """Adds an event, from one thread alone."""
        self.totals = after(self.totals, event)


@contextmanager
def exporting(port: int | None) -> Iterator[Exporter | None]:
    """Within, what an exporter takes in is served on a port of this machine, 0 for any free one; None without a port.

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

"""Serves totals to programs on this machine over HTTP, in one thread that leaves the machine to the decoder.

Requests are answered one by one, each within moments, and after each the thread rests in proportion to what that took:
a client that is slow, sends too much or comes in a crowd only makes other clients wait. Knows no events.
"""

import errno
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from io import BytesIO
from socket import socket
from socketserver import BaseRequestHandler, TCPServer

from prometheus_client import CollectorRegistry, MetricsHandler

from decoder.errors import ConfigError
from dynatui.prometheus.page import TotalsCollector
from dynatui.prometheus.totals import Totals

logger = logging.getLogger(__name__)

_ADDRESS = "127.0.0.1"
_PATH = "/metrics"
_PATIENCE_S = 0.2
"""For a whole request, and again for each of the two parts of an answer."""
_LARGEST_REQUEST = 8192
"""Bytes; one of Prometheus has a few hundred."""
_POLL_S = 0.1
_SHARE = 0.01
"""Of a core, at most."""
_REASONS = {errno.EADDRINUSE: "another program uses it", errno.EACCES: "only an administrator may open it"}


@contextmanager
def serving(port: int, read: Callable[[], Totals]) -> Iterator[str]:
    """Within, the totals are served under the URL that it yields; port 0 is any free one. Ends within a second.

    Raises:
        ConfigError: The port cannot be opened.
    """
    registry = CollectorRegistry(auto_describe=True)
    registry.register(TotalsCollector(read))
    try:
        server = _Server(port, _Handler.factory(registry))
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror)
        raise ConfigError(
            f"metrics_port is {port}, which cannot be served: {reason}; give another, or 0 for any free one",
            "metrics_port",
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="dynatui-metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{_ADDRESS}:{server.server_address[1]}{_PATH}"
    finally:
        server.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(TCPServer):
    """Answers one request at a time."""

    allow_reuse_address = True

    def __init__(self, port: int, handler: type[BaseRequestHandler]) -> None:
        self.stopping = threading.Event()
        self._used_s = 0.0
        super().__init__((_ADDRESS, port), handler)

    def service_actions(self) -> None:
        """Rests, after a request as after none, so that the thread takes its share of a core and no more."""
        used_s = time.thread_time()
        self.stopping.wait((used_s - self._used_s) * (1 / _SHARE - 1))
        self._used_s = used_s

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that breaks off is the client's affair; anything else is a fault of ours."""
        del request, client_address
        if not isinstance(sys.exception(), OSError):
            logger.exception("metrics were not served")


class _Handler(MetricsHandler):
    """Answers one request that came whole."""

    def handle(self) -> None:
        """Reads before anything is answered, so that what is then parsed is short."""
        self.rfile.close()
        self.rfile = BytesIO(_request(self.connection))
        self.connection.settimeout(_PATIENCE_S)
        super().handle()

    def do_GET(self) -> None:  # noqa: N802 - the name that the library calls
        """The metrics as plain text, whatever format is preferred."""
        del self.headers["Accept"]  # OpenMetrics as the library writes it may lack the names' colons: its issue 1177
        if self.path.partition("?")[0] == _PATH:
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND, f"only {_PATH} is here")


def _request(connection: socket) -> bytes:
    """All that a client sends up to a blank line; nothing where that does not come in time or within bounds.

    Raises:
        OSError: The connection broke off, or nothing came in time.
    """
    until, received = time.monotonic() + _PATIENCE_S, b""
    while b"\r\n\r\n" not in received:
        left = until - time.monotonic()
        if left <= 0:
            return b""
        connection.settimeout(left)
        part = connection.recv(_LARGEST_REQUEST - len(received))
        if not part:
            return b""
        received += part
    return received

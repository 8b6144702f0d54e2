"""Serves metrics to this machine, in a thread with a bounded share of a core, so that no request delays the run."""

import errno
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from io import BytesIO
from socket import socket
from socketserver import BaseRequestHandler, TCPServer

from prometheus_client import CollectorRegistry, MetricsHandler

from decoder.errors import ConfigError

logger = logging.getLogger(__name__)

_ADDRESS = "127.0.0.1"
_PATH = "/metrics"
_PATIENCE_S = 0.2
"""Time limit for reading a request, and for each of the two writes of a response."""
_LARGEST_REQUEST = 8192
"""Limit in bytes; Prometheus sends a few hundred."""
_POLL_S = 0.1
_SHARE = 0.01
"""Largest share of a core, unless requests are so expensive that `_LONGEST_PAUSE_S` limits the pauses after them."""
_LONGEST_PAUSE_S = 2.0
"""Prometheus waits 10 s for a response. On some virtual machines, a response takes more CPU time after a pause: 3 ms
without a pause, 40 ms after one second. Without a limit, each pause would therefore be longer than the previous one.
"""
_REASONS = {errno.EADDRINUSE: "another program uses it", errno.EACCES: "only an administrator may open it"}


@contextmanager
def serving(port: int, registry: CollectorRegistry) -> Iterator[str]:
    """Yields the URL; stops within a second. Raises ConfigError if the port cannot be opened."""
    try:
        server = _Server(port, _Handler.factory(registry))
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror)
        raise ConfigError(
            f"metrics_port is {port}, which cannot be opened: {reason}; give another port, or 0 for any free port",
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
    allow_reuse_address = True

    def __init__(self, port: int, handler: type[BaseRequestHandler]) -> None:
        self.stopping = threading.Event()
        self._used_s = 0.0
        super().__init__((_ADDRESS, port), handler)

    def service_actions(self) -> None:
        """Sleeps after each request or idle poll, to stay within `_SHARE` of a core; at most `_LONGEST_PAUSE_S`."""
        used_s = time.thread_time()
        self.stopping.wait(min(_LONGEST_PAUSE_S, (used_s - self._used_s) * (1 / _SHARE - 1)))
        self._used_s = used_s

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs all errors except those of broken connections."""
        del request, client_address
        if not isinstance(sys.exception(), OSError):
            logger.exception("metrics were not served")


class _Handler(MetricsHandler):
    def handle(self) -> None:
        """Reads the whole request, up to the maximum size and time, before it is parsed."""
        self.rfile.close()
        self.rfile = BytesIO(_request(self.connection))
        self.connection.settimeout(_PATIENCE_S)
        super().handle()

    def do_GET(self) -> None:  # noqa: N802 - the library calls this name
        """The response is always plain text, whatever format the request accepts."""
        del self.headers["Accept"]  # OpenMetrics output may lose colons in names: issue 1177 of prometheus_client
        if self.path.partition("?")[0] == _PATH:
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND, f"this server has only {_PATH}")


def _request(connection: socket) -> bytes:
    """The request; empty if it is too large or incomplete. Raises OSError for a broken or slow connection."""
    until, received = time.monotonic() + _PATIENCE_S, b""
    while b"\r\n\r\n" not in received:
        left = until - time.monotonic()
        if left <= 0:
            return b""
        connection.settimeout(left)
        received_part = connection.recv(_LARGEST_REQUEST - len(received))
        if not received_part:
            return b""
        received += received_part
    return received

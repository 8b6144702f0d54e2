"""A local server with answers set by a test: pages, errors, slow answers, or none."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

Answer: TypeAlias = Callable[[BaseHTTPRequestHandler], None]

PAGES = Path(__file__).parent / "pages"


def page(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text(encoding="utf-8")


def text(body: str | bytes, status: int = 200, **headers: str) -> Answer:
    """An immediate answer; `_` in a header's name stands for `-`."""
    content = body.encode() if isinstance(body, str) else body

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content_Type": "text/plain; version=0.0.4; charset=utf-8", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def raw(content: bytes) -> Answer:
    """An answer of arbitrary bytes, not necessarily HTTP, after which the connection is closed."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(content)
        handler.close_connection = True

    return answer


def dripping(content: bytes, pause_s: float, stopped: threading.Event) -> Answer:
    """An endless answer, sent byte by byte, so that no single read times out."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.wfile.write(content)
        while not stopped.wait(pause_s):
            handler.wfile.write(b"x")

    return answer


def by_path(answers: dict[str, Answer]) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        answers.get(handler.path.partition("?")[0], text("not found", 404))(handler)

    return answer


class PageServer:
    def __init__(self, port: int = 0) -> None:
        self.answer: Answer = text("")
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        """Path, headers and body of each request."""
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                served.requests.append((self.path, dict(self.headers.items()), body))
                with suppress(OSError):  # the client may be gone
                    served.answer(self)

            do_POST = do_GET  # noqa: N815 - http.server's name

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
                del format, args

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignores errors of clients that disconnected, as in some tests."""
                del request, client_address

        self._server = Quiet(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def serving(answer: Answer | None = None, port: int = 0) -> Iterator[PageServer]:
    server = PageServer(port)
    server.answer = answer or server.answer
    try:
        yield server
    finally:
        server.close()

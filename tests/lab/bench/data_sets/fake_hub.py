"""A local server that answers huggingface_hub's requests for public data sets and models."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0" * 40


@dataclass
class Hub:
    """Files of the hub, and the paths requested so far."""

    files: Mapping[str, bytes]
    """File contents by `REPOSITORY/PATH`."""
    refuses: tuple[int, str] | None = None
    """HTTP status and hub error code with which every request is refused."""
    commit: str = COMMIT
    """The commit of every branch and tag."""
    request: list[str] = field(default_factory=list)
    endpoint: str = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content for a requested path."""
        self.request.append(path)
        if self.refuses:
            status, code = self.refuses
            return status, {"X-Error-Code": code}, b"{}"
        if path.startswith(("/api/datasets/", "/api/models/")):
            return self._information("/".join(path.partition("?")[0].split("/")[3:5]))
        parts = path.removeprefix("/datasets").split("/")[1:]
        name = "/".join(part for at, part in enumerate(parts) if at not in (2, 3))
        if name not in self.files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
        content = self.files[name]
        tag = hashlib.sha256(content).hexdigest()
        return 200, {"X-Repo-Commit": self.commit, "ETag": f'"{tag}"'}, content

    def _information(self, repository: str) -> tuple[int, dict[str, str], bytes]:
        inside = [name.removeprefix(f"{repository}/") for name in self.files if name.startswith(f"{repository}/")]
        if not inside:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        found = {"id": repository, "sha": self.commit, "siblings": [{"rfilename": name} for name in inside], "tags": []}
        warned = {"Content-Type": "application/json", "X-HF-Warning": f"{self.endpoint}; You are not logged in."}
        return 200, warned, json.dumps(found).encode()


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serves the hub at `hub.endpoint` inside the context."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_content=False)

        def do_GET(self) -> None:
            self._answer(with_content=True)

        def _answer(self, *, with_content: bool) -> None:
            status, headers, content = hub.answer(self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if with_content:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Logs nothing, because tests check the printed output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

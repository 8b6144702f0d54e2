"""The metrics server answers programs on this machine, survives any request, and ends with the run."""

import errno
import gzip
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socketserver import TCPServer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from decoder.errors import ConfigError
from decoder.events import Event, Round, Start, Summary
from dynatui.prometheus import Exporter, exporting
from dynatui.screen import run
from dynatui.session import Models, Session, View
from dynatui.sources.engine import EngineSource
from dynatui.state.run_state import Loading
from dynatui.terminal import guard
from tests.dynatui.fake_engine import FakeEngine, story
from tests.dynatui.prometheus.scraping import PATIENCE_S, address, answer, counted, generated, metrics_of

MOST_S = 1.0
"""Maximum time in which a server ends."""


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with exporting(0) as found:
        assert found is not None
        yield found


def sent(exporter: Exporter, data: bytes) -> bytes:
    """Everything that the server sends for these bytes until it closes the connection."""
    with socket.create_connection(address(exporter.url), timeout=PATIENCE_S) as connection:
        received = b""
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                received += part
        except ConnectionError:
            pass
        return received


def server_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dynatui-metrics"]


def test_a_page_tells_the_counts_of_the_moment(exporter: Exporter) -> None:
    committed = dict[str, int]()
    for number, event in enumerate(story()):
        exporter.take(event)
        if isinstance(event, Start | Round):
            committed.setdefault(event.method, 0)
        if isinstance(event, Round):
            committed[event.method] += len(event.committed)
        if number % 4:
            continue
        status, kind, page = answer(exporter.url)
        assert status == 200
        assert kind.startswith("text/plain; version=")
        assert generated(page) == committed
    assert generated(page) == {"dynatree": 8, "ar": 8}


@pytest.fixture
def served(exporter: Exporter) -> str:
    for event in story():
        exporter.take(event)
    return exporter.url


@pytest.mark.parametrize(
    "accepted",
    [
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.5,*/*;q=0.2",
        "text/html",
    ],
)
def test_names_are_vllms_alone_whatever_format_a_client_prefers(served: str, accepted: str) -> None:
    _, kind, page = answer(served, Accept=accepted)
    assert kind.startswith("text/plain; version=0.0.4")
    assert generated(page) == {"dynatree": 8, "ar": 8}
    assert all(line.split()[2].startswith("vllm:") for line in page.decode().splitlines() if line.startswith("#"))


def test_a_client_on_this_machine_may_ask_for_a_compressed_page_or_for_some_of_the_metrics(served: str) -> None:
    assert address(served)[0] == "127.0.0.1"
    assert b"vllm:prompt_tokens" in gzip.decompress(answer(served, Accept_Encoding="gzip").page)
    *_, page = answer(served, "/metrics?name[]=vllm:generation_tokens_total")
    assert generated(page) == {"dynatree": 8, "ar": 8}
    assert b"vllm:prompt_tokens" not in page


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics/../secret", 404), ("POST", "/metrics", 501), ("GET", "//[", 404)],
)
def test_whatever_else_is_asked_for_is_refused(exporter: Exporter, method: str, path: str, status: int) -> None:
    assert answer(exporter.url, path, method).status == status


@pytest.mark.parametrize(
    "data",
    [
        *(b"\r\n\r\n", b"\x00\xff\x16\x03\x01\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"x" * 10**6),
        b"GET /metrics HTTP/1.0\r\nX: " + b"x" * 10**6 + b"\r\n\r\n",
        b"GET /metrics?" + b"name[]=%ff&" * 300 + b" HTTP/1.0\r\n\r\n",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_a_request_that_makes_no_sense_is_the_clients_own_loss(
    exporter: Exporter, data: bytes, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    sent(exporter, data)
    assert answer(exporter.url).status == 200
    assert (caplog.records, capfd.readouterr()) == ([], ("", ""))


def test_silent_clients_do_not_keep_others_waiting(exporter: Exporter) -> None:
    with ExitStack() as open_until_the_end:
        for _ in range(5):
            open_until_the_end.enter_context(socket.create_connection(address(exporter.url)))
        assert answer(exporter.url).status == 200


def test_clients_that_leave_before_they_are_answered_are_no_fault(
    exporter: Exporter, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(4):
        with socket.create_connection(address(exporter.url)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # closing resets it
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert answer(exporter.url).status == 200
    assert (caplog.records, capfd.readouterr()) == ([], ("", ""))


def test_a_fault_of_ours_is_logged_and_the_next_request_answered(
    exporter: Exporter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(exporter.registry, "collect", lambda: [None])
        sent(exporter, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert answer(exporter.url).status == 200
    assert [record.message for record in caplog.records] == ["metrics were not served"]


@pytest.mark.wall_time
@pytest.mark.parametrize("busy", [False, True])
def test_the_server_ends_within_a_second_and_leaves_nothing(*, busy: bool) -> None:
    with ExitStack() as open_until_the_end:
        with exporting(0) as exporter:
            assert exporter is not None
            place = address(exporter.url)
            if busy:
                for _ in range(3):
                    connection = socket.create_connection(place)
                    open_until_the_end.enter_context(connection)
                    connection.sendall(b"GET /met")
                time.sleep(0.05)
            assert len(server_threads()) == 1
            began = time.monotonic()
        assert time.monotonic() - began < MOST_S
    assert not server_threads()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place)
    with pytest.raises(RuntimeError, match="out of memory"), exporting(0):
        raise RuntimeError("out of memory")
    assert not server_threads()


def test_a_port_that_is_taken_is_refused_and_can_be_used_again_at_once() -> None:
    with exporting(0) as exporter:
        assert exporter is not None
        _, port = address(exporter.url)
        answer(exporter.url)
        taken = rf"^metrics_port is {port}, .*another program uses it; give another"
        with pytest.raises(ConfigError, match=taken), exporting(port):
            pass
        assert len(server_threads()) == 1
    with exporting(port) as again:
        assert again is not None
        assert address(again.url)[1] == port
        assert answer(again.url).status == 200


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "only an administrator may open it"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), "Cannot assign requested address"),
    ],
)
def test_why_a_port_cannot_be_opened_is_told(monkeypatch: pytest.MonkeyPatch, error: OSError, why: str) -> None:
    def fail(_server: TCPServer) -> None:
        raise error

    monkeypatch.setattr(TCPServer, "server_bind", fail)
    refused = pytest.raises(ConfigError, match=f"^metrics_port is 80, which cannot be opened: {why}; give another")
    with refused, exporting(80):
        pass


def test_without_a_port_nothing_of_prometheus_is_imported(tmp_path: Path) -> None:
    code = (
        "import json, sys, threading, dynatui.main, dynatui.cli.headless, dynatui.screen.run\n"
        "from dynatui.prometheus import exporting\n"
        "with exporting(None) as exporter: found = [exporter, threading.active_count()]\n"
        "print(json.dumps([*found, [name for name in sys.modules if name.startswith('prometheus_client')]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [None, 1, []]


def test_on_the_screen_every_event_counts_over_prompts_and_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, session = FakeEngine(), Session(("one", "two"), Models("big", "small"), metrics_port=0)

    def show(source: EngineSource, _view: View, _command: object) -> int:
        (loading,) = source.records
        assert isinstance(loading, Loading)
        source.start()
        url, until = loading.step.removeprefix("serving metrics at "), time.monotonic() + PATIENCE_S
        while len(engine.prompts) < 5 and time.monotonic() < until:
            source.go(0)
            assert answer(url).status == 200
        assert source.close(PATIENCE_S)
        told = [record for record in source.records if isinstance(record, Event)]
        assert sum(isinstance(event, Summary) for event in told) >= 4
        families = text_string_to_metric_families(answer(url).page.decode())
        assert metrics_of(families) == counted(told)
        return 0

    monkeypatch.setattr(run, "_show", show)
    monkeypatch.setattr(run, "load_with_times", engine.loader)
    monkeypatch.setattr(guard, "silence_libraries", lambda: None)
    assert run.watch(session) == 0
    assert not server_threads()

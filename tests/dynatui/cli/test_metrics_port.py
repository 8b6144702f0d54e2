"""Tests of --metrics-port: totals are served during a run; an unusable port is refused before the run starts."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from decoder.session.steering import Steering
from dynatui import main as cli
from dynatui.cli import ranks
from dynatui.record.recording import Recorder
from tests.dynatui.cli.fake_screen import FakeScreen
from tests.dynatui.fake_engine import FakeEngine
from tests.dynatui.prometheus.scraping import answer, generated

HEADLESS = ("--headless", "--methods", "dynatree,ar", "--prompt", "one", "--prompt", "two")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another server listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refused command prints."""
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("dynatui: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_nothing_is_served_unless_asked_for(screen: FakeScreen) -> None:
    assert cli.main([]) == 0
    assert screen.sessions[-1].metrics_port is None


@pytest.mark.parametrize("port", [0, 9400, 65535])
def test_the_port_is_handed_on(screen: FakeScreen, port: int) -> None:
    assert cli.main(["--metrics-port", str(port)]) == 0
    assert screen.sessions[-1].metrics_port == port


def test_the_port_can_be_set_for_good(screen: FakeScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATUI_METRICS_PORT", "9400")
    assert cli.main([]) == 0
    assert screen.sessions[-1].metrics_port == 9400


@pytest.mark.parametrize("port", ["-1", "65536", "99999999999999999999", "http", "9400.5", ""])
def test_what_is_no_port_is_refused(capsys: pytest.CaptureFixture[str], engine: FakeEngine, port: str) -> None:
    assert "--metrics-port" in refused(capsys, *HEADLESS, "--metrics-port", port)
    assert not engine.pairs


def test_a_port_that_is_taken_is_refused_before_models_are_loaded_and_files_made(
    capsys: pytest.CaptureFixture[str], engine: FakeEngine, taken: int, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    line = refused(capsys, *HEADLESS, "--metrics-port", str(taken), "--record", str(path))
    assert line == (
        f"dynatui: metrics_port is {taken}, which cannot be opened: another program uses it; "
        "give another port, or 0 for any free port\n"
    )
    assert not engine.pairs
    assert not path.exists()


def test_a_port_of_the_settings_that_is_taken_is_refused_with_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, taken: int
) -> None:
    monkeypatch.setenv("DYNATUI_METRICS_PORT", str(taken))
    assert refused(capsys, *HEADLESS).endswith("(metrics_port from DYNATUI_METRICS_PORT)\n")
    assert not engine.pairs


def test_of_several_ranks_the_leader_alone_serves(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    class FollowsError(Exception):
        """Raised where a follower would start to follow."""

    def follow(_: object) -> None:
        raise FollowsError

    monkeypatch.setattr(ranks, "join", follow)
    with pytest.raises(FollowsError):
        cli.main([*HEADLESS, "--metrics-port", str(taken)])


def test_who_only_follows_serves_nothing(capsys: pytest.CaptureFixture[str], recorded: Path) -> None:
    line = refused(capsys, "--follow", str(recorded), "--metrics-port", "0")
    assert "--metrics-port has no effect beside --follow" in line


def test_a_recording_that_cannot_be_written_leaves_no_server(
    capsys: pytest.CaptureFixture[str], engine: FakeEngine, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path):
        line = refused(capsys, *HEADLESS, "--metrics-port", "0", "--record", str(path))
    assert "another process is writing" in line
    assert not engine.pairs


def test_a_run_without_a_screen_says_where_it_serves_and_counts_over_all_prompts(
    capsys: pytest.CaptureFixture[str], engine: FakeEngine
) -> None:
    said, pages = list[str](), list[bytes]()

    def url() -> str:
        said.append(capsys.readouterr().err)
        (found,) = re.findall(r"^metrics at (http://127\.0\.0\.1:\d+/metrics)$", "".join(said), re.MULTILINE)
        return str(found)

    def scrape(number: int, _steering: Steering) -> None:
        if number % 4 == 0:
            pages.append(answer(url()).page)

    engine.before_event = scrape
    assert cli.main([*HEADLESS, "--metrics-port", "0"]) == 0
    counts = [generated(page).get("dynatree", 0.0) for page in pages]
    assert counts == sorted(counts)
    assert counts[-1] == 16
    with pytest.raises(ConnectionRefusedError):
        answer(url())

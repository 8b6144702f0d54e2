"""Tests of --metrics-port: totals are served during a run; an unusable port is refused before the run starts."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from decoder.session.steering import Steering
from dynatui import main as cli
from dynatui.cli import ranks
from tests.dynatui.cli.fake_screen import Refused
from tests.dynatui.fake_engine import FakeEngine
from tests.dynatui.prometheus.scraping import answer, generated

HEADLESS = ("--headless", "--methods", "dynatree,ar", "--prompt", "one", "--prompt", "two")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_is_taken_is_refused_before_models_are_loaded_and_files_made(
    engine: FakeEngine, taken: int, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refused(*HEADLESS, "--metrics-port", str(taken), "--record", str(tmp_path / "run.jsonl"))
    assert line == (
        f"metrics_port is {taken}, which cannot be opened: another program uses it; "
        "give another port, or 0 for any free port"
    )
    monkeypatch.setenv("DYNATUI_METRICS_PORT", str(taken))
    assert refused(*HEADLESS).endswith("(metrics_port from DYNATUI_METRICS_PORT)")
    assert not engine.pairs
    assert not (tmp_path / "run.jsonl").exists()


def test_of_several_ranks_the_leader_alone_serves(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    class FollowsError(Exception):
        """Raised where a follower would start to follow."""

    def follow(_: object) -> None:
        raise FollowsError

    monkeypatch.setattr(ranks, "join", follow)
    with pytest.raises(FollowsError):
        cli.main([*HEADLESS, "--metrics-port", str(taken)])


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

"""Under torchrun the first process decodes and serves metrics; an unusable port is refused before the run starts."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from decoder.session.steering import Steering
from decoder.tensor_parallel import target
from decoder.tensor_parallel.ranks import Ranks
from dynatui import main as cli
from dynatui.cli import ranks
from tests.decoder.tensor_parallel.started_ranks import FIRST_OF_TWO, start_as
from tests.dynatui.cli.fake_screen import FakeScreen, Refused
from tests.dynatui.fake_engine import FakeEngine
from tests.dynatui.prometheus.scraping import answer, generated


def test_the_first_of_those_that_were_started_decodes(screen: FakeScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    start_as(FIRST_OF_TWO, monkeypatch)
    assert cli.main([]) == 0
    assert len(screen.sessions) == 1


class EndedError(BaseException):
    """Stands for the end of the process."""


def test_the_others_follow_with_the_same_target(screen: FakeScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    following: list[tuple[object, ...]] = []

    def end(code: int) -> None:
        raise EndedError(code)

    second = Ranks(1, 3, local=1, local_count=3)
    start_as(second, monkeypatch)
    monkeypatch.setattr(target, "serve", lambda *given: following.append(given))
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(EndedError):
        cli.main(["--target", "t", "--draft", "d"])
    assert (following, screen.sessions) == ([(second, "t", "auto")], [])


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

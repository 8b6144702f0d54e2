"""A screen is a job like any other: it may start in the background, be stopped, continued there, and ended there."""

import signal
import sys
from pathlib import Path

import pytest

from decoder.events import encode
from tests.dynatui.attach.scripted_session import session
from tests.dynatui.endless_engine import script
from tests.dynatui.one_job_shell import IN_BACKGROUND, STOPPED
from tests.dynatui.pty_terminal import (
    ENTER,
    LEAVE,
    Start,
    Terminal,
    assert_left_clean,
    assert_modes_given_back,
    edits_lines,
    written,
)
from tests.dynatui.scripted_runs import story

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")]


def in_shell(start: Start, *arguments: str) -> Terminal:
    return start("-m", "tests.dynatui.one_job_shell", *arguments, size=(120, 40))


@pytest.fixture(params=["live", "replay", "compare", "attach"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[tuple[str, ...], str]:
    run, server = written(tmp_path / "run.jsonl", story(10)), tmp_path / "server.jsonl"
    server.write_bytes(b"".join(map(encode, session(30))))
    replay = ("-m", "dynatui", "replay")
    jobs = {
        "live": (("-c", script()), "L-bar"),
        "replay": ((*replay, run), "L-bar"),
        "compare": ((*replay, run, run), "whole run"),
        "attach": ((*replay, str(server), "--speed", "30"), "replay ended"),
    }
    return jobs[request.param]


def stopped_again(terminal: Terminal, order: str, times: int) -> None:
    terminal.send(f"{order}\n")
    assert terminal.wait_until(lambda: terminal.written.count(STOPPED.encode()) == times)


def test_a_screen_started_in_the_background_waits_for_fg(start: Start, job: tuple[tuple[str, ...], str]) -> None:
    arguments, shows = job
    terminal = in_shell(start, IN_BACKGROUND, *arguments)
    terminal.wait_for(STOPPED)
    stopped_again(terminal, "bg", 2)
    assert ENTER not in terminal.written
    terminal.send("fg\n")
    terminal.wait_for(shows)
    terminal.send("q")
    assert terminal.end() == 0
    assert_left_clean(terminal)
    assert edits_lines(terminal), "the modes are not those in which the shell read its orders"


def test_a_stopped_screen_that_is_continued_in_the_background_waits_for_fg(start: Start, recording: str) -> None:
    terminal = in_shell(start, "-m", "dynatui", "replay", recording)
    terminal.wait_for("L-bar")
    terminal.send("\x1a")
    terminal.wait_for(STOPPED)
    stopped_again(terminal, "bg", 2)
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1
    terminal.send("fg\n")
    assert terminal.wait_until(lambda: terminal.written.count(ENTER) == 2)
    terminal.wait_for("L-bar")
    terminal.send("q")
    assert terminal.end() == 0
    assert_left_clean(terminal, screens=2)
    assert_modes_given_back(terminal)


def test_a_stopped_screen_can_be_killed(start: Start, recording: str) -> None:
    terminal = in_shell(start, "-m", "dynatui", "replay", recording)
    terminal.wait_for("L-bar")
    terminal.send("\x1a")
    terminal.wait_for(STOPPED)
    terminal.send("kill\n")
    assert terminal.end() == 128 + signal.SIGTERM
    assert_left_clean(terminal)

"""A screen is a job like any other: it may start in the background, be stopped, continued there, and ended there."""

import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from decoder.events import encode
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
    leave,
    written,
)
from tests.dynatui.scripted_runs import story
from tests.dynatui.servers.attach.scripted_session import session


class Job(NamedTuple):
    arguments: tuple[str, ...]
    shows: str


@pytest.fixture(params=["live", "compare", "attach"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    run, server = written(tmp_path / "run.jsonl", story(10)), tmp_path / "server.jsonl"
    server.write_bytes(b"".join(map(encode, session(30))))
    replay = ("-m", "dynatui", "replay")
    return {
        "live": Job(("-c", script()), "tokens a round"),
        "compare": Job((*replay, run, run), "whole run"),
        "attach": Job((*replay, str(server), "--speed", "30"), "replay ended"),
    }[request.param]


def wrote(terminal: Terminal, code: bytes, times: int) -> bool:
    """Waits until this has been written so many times."""
    return terminal.wait_until(lambda: terminal.written.count(code) == times)


def stopped(terminal: Terminal, order: str, times: int) -> bool:
    terminal.send(order)
    return wrote(terminal, STOPPED.encode(), times)


def filled(terminal: Terminal) -> set[int]:
    return {number for number, row in enumerate(terminal.rows) if row.strip()}


def test_a_screen_in_the_background_waits_for_fg(start: Start, job: Job) -> None:
    terminal = start("-m", "tests.dynatui.one_job_shell", IN_BACKGROUND, *job.arguments, size=(120, 40))
    terminal.wait_for(STOPPED)
    assert stopped(terminal, "bg\n", 2)
    assert ENTER not in terminal.written
    terminal.send("fg\n")
    terminal.wait_for(job.shows)
    assert stopped(terminal, "\x1a", 3)
    assert stopped(terminal, "bg\n", 4)
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1
    terminal.send("fg\n")
    assert wrote(terminal, ENTER, 2)
    terminal.wait_for(job.shows)
    leave(terminal, screens=2)
    assert edits_lines(terminal), "the modes are not those in which the shell read its orders"


def test_a_stopped_screen_can_be_killed(start: Start, recording: str) -> None:
    terminal = start("-m", "tests.dynatui.one_job_shell", "-m", "dynatui", "replay", recording)
    terminal.wait_for("tokens a round")
    assert stopped(terminal, "\x1a", 1)
    terminal.send("kill\n")
    assert terminal.end() == 128 + signal.SIGTERM
    assert_left_clean(terminal)


def test_stops_of_every_kind_give_the_terminal_back_and_what_was_erased_is_drawn_again(start: Start, job: Job) -> None:
    terminal = start(*job.arguments, size=(120, 40))
    terminal.wait_for(job.shows)
    terminal.read(0.3)
    before = filled(terminal)
    terminal.send("\x1a")
    for times in (1, 2):
        assert wrote(terminal, LEAVE, times)
        terminal.read(0.2)
        assert terminal.written.count(ENTER) == times
        terminal.screen.erase_in_display(2)
        terminal.child.kill(signal.SIGCONT)
        assert wrote(terminal, ENTER, times + 1)
        terminal.wait_for(job.shows)
        assert terminal.wait_until(lambda: filled(terminal) >= before), "every line is drawn again"
        if times == 1:
            terminal.child.kill(signal.SIGTSTP)
    terminal.child.kill(signal.SIGSTOP)
    terminal.read(0.2)
    terminal.screen.erase_in_display(2)
    terminal.child.kill(signal.SIGCONT)
    terminal.wait_for(job.shows)
    terminal.screen.erase_in_display(2)
    terminal.send("\x0c")
    terminal.wait_for(job.shows)
    leave(terminal, screens=terminal.written.count(ENTER))
    assert_modes_given_back(terminal)


def test_signals_to_go_on_may_interrupt_each_other(start: Start) -> None:
    terminal = start("-c", script(after="import signal; signal.raise_signal(signal.SIGCONT)"), size=(120, 40))
    terminal.wait_for("tokens a round")
    for pause_s in (0.0, 0.001, 0.01, 0.05):
        terminal.child.kill(signal.SIGCONT)
        terminal.read(pause_s)
        terminal.screen.erase_in_display(2)
        terminal.child.kill(signal.SIGCONT)
        terminal.wait_for("tokens a round")
    terminal.send("q")
    assert terminal.end() == 0, "a signal after the app's end does no harm either"
    assert_modes_given_back(terminal)

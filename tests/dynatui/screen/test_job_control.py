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


@pytest.fixture(params=["live", "replay", "compare", "attach"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    run, server = written(tmp_path / "run.jsonl", story(10)), tmp_path / "server.jsonl"
    server.write_bytes(b"".join(map(encode, session(30))))
    replay = ("-m", "dynatui", "replay")
    return {
        "live": Job(("-c", script()), "tokens a round"),
        "replay": Job((*replay, run), "tokens a round"),
        "compare": Job((*replay, run, run), "whole run"),
        "attach": Job((*replay, str(server), "--speed", "30"), "replay ended"),
    }[request.param]


def in_shell(start: Start, *arguments: str) -> Terminal:
    return start("-m", "tests.dynatui.one_job_shell", *arguments, size=(120, 40))


def in_front(start: Start, job: Job) -> Terminal:
    terminal = start(*job.arguments, size=(120, 40))
    terminal.wait_for(job.shows)
    return terminal


def stopped(start: Start, recording: str) -> Terminal:
    terminal = in_shell(start, "-m", "dynatui", "replay", recording)
    terminal.play("tokens a round", b"\x1a")
    terminal.wait_for(STOPPED)
    return terminal


def stopped_again(terminal: Terminal, order: str, times: int) -> None:
    terminal.send(f"{order}\n")
    assert terminal.wait_until(lambda: terminal.written.count(STOPPED.encode()) == times)


def entered(terminal: Terminal, times: int) -> bool:
    return terminal.wait_until(lambda: terminal.written.count(ENTER) == times)


def filled(terminal: Terminal) -> set[int]:
    return {number for number, row in enumerate(terminal.rows) if row.strip()}


def test_a_screen_started_in_the_background_waits_for_fg(start: Start, job: Job) -> None:
    terminal = in_shell(start, IN_BACKGROUND, *job.arguments)
    terminal.wait_for(STOPPED)
    stopped_again(terminal, "bg", 2)
    assert ENTER not in terminal.written
    terminal.send("fg\n")
    terminal.wait_for(job.shows)
    leave(terminal)
    assert edits_lines(terminal), "the modes are not those in which the shell read its orders"


def test_a_stopped_screen_that_is_continued_in_the_background_waits_for_fg(start: Start, recording: str) -> None:
    terminal = stopped(start, recording)
    stopped_again(terminal, "bg", 2)
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1
    terminal.send("fg\n")
    assert entered(terminal, 2)
    terminal.wait_for("tokens a round")
    leave(terminal, screens=2)
    assert_modes_given_back(terminal)


def test_a_stopped_screen_can_be_killed(start: Start, recording: str) -> None:
    terminal = stopped(start, recording)
    terminal.send("kill\n")
    assert terminal.end() == 128 + signal.SIGTERM
    assert_left_clean(terminal)


def test_ctrl_z_and_a_signal_give_the_terminal_back_and_fg_takes_it_again(start: Start, job: Job) -> None:
    terminal = in_front(start, job)
    terminal.read(0.3)
    before = filled(terminal)
    terminal.send("\x1a")
    assert terminal.wait_until(lambda: LEAVE in terminal.written)
    terminal.read(0.2)
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1
    terminal.screen.erase_in_display(2)
    terminal.child.kill(signal.SIGCONT)
    assert entered(terminal, 2)
    terminal.wait_for(job.shows)
    assert terminal.wait_until(lambda: filled(terminal) >= before), "every line is drawn again"
    terminal.child.kill(signal.SIGTSTP)
    assert terminal.wait_until(lambda: terminal.written.count(LEAVE) == 2)
    terminal.read(0.2)
    terminal.child.kill(signal.SIGCONT)
    assert entered(terminal, 3)
    leave(terminal, screens=3)


def test_it_goes_on_after_a_stop_that_it_was_not_told_of_and_ctrl_l_draws_it_anew(start: Start, job: Job) -> None:
    terminal = in_front(start, job)
    for stop in (signal.SIGSTOP, signal.SIGCONT, None):
        if stop:
            terminal.child.kill(stop)
        terminal.read(0.3)
        terminal.screen.erase_in_display(2)
        assert job.shows not in terminal.shown
        if stop:
            terminal.child.kill(signal.SIGCONT)
        else:
            terminal.send("\x0c")
        terminal.wait_for(job.shows)
    terminal.send("q")
    assert terminal.end() == 0
    assert_left_clean(terminal, screens=terminal.written.count(ENTER))
    assert_modes_given_back(terminal)


def test_signals_to_go_on_may_interrupt_each_other(start: Start) -> None:
    terminal = start("-c", script(after="import signal; signal.raise_signal(signal.SIGCONT)"), size=(120, 40))
    terminal.wait_for("tokens a round")
    for pause_s in (0.0, 0.001, 0.01, 0.05) * 3:
        terminal.child.kill(signal.SIGCONT)
        terminal.read(pause_s)
        terminal.screen.erase_in_display(2)
        terminal.child.kill(signal.SIGCONT)
        terminal.wait_for("tokens a round")
    terminal.send("q")
    assert terminal.end() == 0, "a signal after the app's end does no harm either"
    assert_modes_given_back(terminal)

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


def stopped(terminal: Terminal, order: str, times: int) -> None:
    terminal.send(order)
    assert terminal.wait_until(lambda: terminal.written.count(STOPPED.encode()) == times)


def entered(terminal: Terminal, times: int) -> bool:
    return terminal.wait_until(lambda: terminal.written.count(ENTER) == times)


def filled(terminal: Terminal) -> set[int]:
    return {number for number, row in enumerate(terminal.rows) if row.strip()}


@pytest.mark.parametrize("killed", [False, True])
def test_a_screen_in_the_background_waits_for_fg_or_is_killed(start: Start, job: Job, *, killed: bool) -> None:
    terminal = start("-m", "tests.dynatui.one_job_shell", IN_BACKGROUND, *job.arguments, size=(120, 40))
    terminal.wait_for(STOPPED)
    stopped(terminal, "bg\n", 2)
    assert ENTER not in terminal.written
    terminal.send("fg\n")
    terminal.wait_for(job.shows)
    stopped(terminal, "\x1a", 3)
    if killed:
        terminal.send("kill\n")
        assert terminal.end() == 128 + signal.SIGTERM
        assert_left_clean(terminal)
        return
    stopped(terminal, "bg\n", 4)
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1
    terminal.send("fg\n")
    assert entered(terminal, 2)
    terminal.wait_for(job.shows)
    leave(terminal, screens=2)
    assert edits_lines(terminal), "the modes are not those in which the shell read its orders"


def test_stops_of_every_kind_give_the_terminal_back_and_what_was_erased_is_drawn_again(start: Start, job: Job) -> None:
    terminal = start(*job.arguments, size=(120, 40))
    terminal.wait_for(job.shows)
    terminal.read(0.3)
    before = filled(terminal)
    terminal.send("\x1a")
    for times in (1, 2):
        assert terminal.wait_until(lambda: terminal.written.count(LEAVE) == times)  # noqa: B023 - used at once
        terminal.read(0.2)
        assert terminal.written.count(ENTER) == times
        terminal.screen.erase_in_display(2)
        terminal.child.kill(signal.SIGCONT)
        assert entered(terminal, times + 1)
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

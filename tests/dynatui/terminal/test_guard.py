"""Settings and log of the process that restores the terminal, and the wait for its foreground."""

import os
import resource
import sys
from pathlib import Path

import pytest

from decoder.errors import ConfigError
from dynatui.terminal import guard
from tests.dynatui.one_job_shell import IN_BACKGROUND, STOPPED
from tests.dynatui.pty_terminal import ENTER, Start, edits_lines


def test_the_log_is_private_and_does_not_grow_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "user_log_path", lambda _name, **_: tmp_path)
    path = guard.log_path()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"x" * 2**21)
    assert guard.log_path().stat().st_size == 0


def test_without_a_place_for_a_log_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: str, **_: bool) -> Path:
        raise PermissionError

    monkeypatch.setattr(guard, "user_log_path", refuse)
    assert guard.log_path() == Path(os.devnull)


def test_a_log_that_the_user_names_is_added_to_and_never_cut(tmp_path: Path) -> None:
    path = tmp_path / "mine.log"
    path.write_bytes(b"x" * 2**21)
    assert guard.log_path(path) == path
    assert path.stat().st_size == 2**21


@pytest.mark.parametrize(("name", "read"), [("pipe", False), ("pipe", True), ("nowhere/mine.log", False)])
def test_a_pipe_and_what_cannot_be_written_is_no_log(tmp_path: Path, name: str, *, read: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK) if read else -1
    with pytest.raises(ConfigError, match=rf"cannot write the log .*{name}: .*; name another file"):
        guard.log_path(tmp_path / name)
    if read:
        os.close(reader)


def test_a_screen_without_enough_descriptors_is_refused() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    guard.check_descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 3, hard))
    try:
        with pytest.raises(ConfigError, match=r"only \d+ are possible .*; raise the limit with ulimit -n 256, or use"):
            guard.check_descriptors()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    guard.check_descriptors()


def test_the_users_own_settings_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"TRANSFORMERS_VERBOSITY": "debug"}
    monkeypatch.setattr(os, "environ", environment)
    guard.silence_libraries()
    assert environment["TRANSFORMERS_VERBOSITY"] == "debug"
    assert environment["TOKENIZERS_PARALLELISM"] == "false"


def test_a_process_in_the_foreground_goes_on(start: Start) -> None:
    terminal = start("-c", "from dynatui.terminal.output import *; wait_for_foreground(0); print('went on')")
    terminal.wait_for("went on")
    assert terminal.end() == 0


def test_a_job_that_no_shell_can_hand_the_terminal_is_refused(start: Start) -> None:
    """Its shell has ended, so that the system no longer stops it."""
    waits = "from dynatui.terminal.output import *; wait_for_foreground(0)"
    command = f"set -m; {sys.executable} -c '{waits}' & exit"
    terminal = start("-c", f"import subprocess, time; subprocess.run(['sh', '-c', {command!r}]); time.sleep(60)")
    terminal.wait_for("the terminal belongs to another job")


CUT_OFF = f"""
import os
from pathlib import Path
from dynatui.terminal.guard import screen_only
with screen_only(Path(os.devnull)) as output:
    output.write({ENTER.decode()!r})
    output.restore()
"""


def test_a_screen_that_is_cut_off_restores_the_modes_of_the_foreground(start: Start) -> None:
    """And not those in which the shell edited its command line while the job started in the background."""
    terminal = start("-m", "tests.dynatui.one_job_shell", IN_BACKGROUND, "-c", CUT_OFF)
    terminal.wait_for(STOPPED)
    terminal.send("fg\n")
    assert terminal.end() == 0
    assert edits_lines(terminal)

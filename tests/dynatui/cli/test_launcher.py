"""Tests of how long a launcher waits for its leader to end: until a deadline, which a second signal brings nearer."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dynatui.cli import launcher
from dynatui.terminal import last_word

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs sigtimedwait")

DONE, SUMMING_UP_S = 7, 1.0
LEADER = f"""
import signal, time

def stop(*_):
    time.sleep({SUMMING_UP_S})
    raise SystemExit({DONE})

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR1, lambda *_: None)
print("ready", flush=True)
time.sleep(60)
"""


@contextmanager
def leading() -> Iterator[subprocess.Popen[bytes]]:
    """A process that takes a while to end after SIGTERM."""
    with subprocess.Popen([sys.executable, "-c", LEADER], stdout=subprocess.PIPE) as leader:
        try:
            assert leader.stdout is not None
            assert leader.stdout.readline() == b"ready\n"
            yield leader
        finally:
            leader.kill()


def ended(leader: subprocess.Popen[bytes], further_s: float, signals: Sequence[signal.Signals]) -> int:
    """Exit code of the leader after these signals to the launcher."""
    with last_word.shared() as word, launcher._signals_pending():
        for number in signals:
            signal.pthread_kill(threading.get_ident(), number)  # threads of libraries do not block signals
        assert launcher._until_the_end(leader, [], word, further_s)[0] is None
    return leader.returncode


@pytest.fixture(autouse=True)
def _little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "GRACE_S", 0.1)


def test_a_leader_that_has_time_ends_in_its_own_way() -> None:
    with leading() as leader:
        assert ended(leader, 60, [signal.SIGTERM]) == DONE


def test_a_leader_that_takes_longer_than_it_may_is_killed() -> None:
    with leading() as leader:
        assert ended(leader, 0, [signal.SIGTERM]) == -signal.SIGKILL


def test_the_exit_code_tells_the_signal_that_ended_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object) -> tuple[subprocess.Popen[bytes], list[object]]:
        return subprocess.Popen(["sh", "-c", "kill -KILL $$"]), []

    monkeypatch.setattr(launcher, "_started", started)
    assert launcher.launch(1, [], drawn=False) == 128 + signal.SIGKILL


def test_a_follower_that_is_killed_is_named_and_ends_the_leader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def started(*_: object) -> tuple[subprocess.Popen[bytes], list[launcher._Follower]]:
        follower = subprocess.Popen(["sh", "-c", "kill -KILL $$"])
        return subprocess.Popen(["sleep", "60"]), [launcher._Follower(1, follower, errors)]

    monkeypatch.setattr(launcher, "_started", started)
    with (tmp_path / "errors").open("w+b") as errors:
        assert launcher.launch(2, [], drawn=False) == 3
    assert capsys.readouterr().err == "dynatui: process 1 of the target was ended by SIGKILL\n"


def test_a_second_signal_shortens_the_time() -> None:
    began = time.monotonic()
    with leading() as leader:
        assert ended(leader, 60, [signal.SIGTERM, signal.SIGUSR1]) < 0
    assert time.monotonic() - began < SUMMING_UP_S

"""When one rank of a target ends, all ranks end soon; unsupported combinations are refused."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from decoder.events import Round, Run, Summary
from dynatui.record.reader import read
from tests.dynatui.one_job_shell import STOPPED
from tests.dynatui.prometheus.scraping import answer, by_method
from tests.dynatui.pty_terminal import ENTER, LEAVE, ROOT, Start, assert_left_clean, assert_modes_given_back, terminals
from tests.dynatui.rank_processes import GONE_WITHIN_S, children, seconds_until_gone, wait_for_ranks
from tests.lab.commands.spread_runs import FLOAT32, ended_run, environment

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="needs signals and /proc")]

LONG = ("--headless", *FLOAT32, "--methods", "dynatree,ar", "--prompt", "The tree", "--max-new-tokens", "1500")
KILLS, LATEST_S = 50, 20.0
"""Number of kills of a rank, and the latest time of a kill in seconds after the start."""
SLOWLY = ("--speed", "0.02")
"""Slows the run down, so that it does not end before the test ends it."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts Python with arguments in a pseudo-terminal."""
    with terminals(tmp_path) as begin:
        yield begin


LEADING = """
import atexit, os, sys, time
class Slow:
    def find_spec(self, name, *_):
        if name == "torch":
            time.sleep(60)
if os.environ.get("RANK") == "0":
"""
SLOW_TO_LOAD = LEADING + "    sys.meta_path.insert(0, Slow())"
SLOW_TO_END = LEADING + "    atexit.register(time.sleep, 60)"


@pytest.mark.parametrize(
    "slow", [SLOW_TO_LOAD, pytest.param(SLOW_TO_END, marks=pytest.mark.soak)], ids=["to load", "to end"]
)
def test_a_refusal_is_told_once_whatever_the_leader_is_slow_at(
    slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    (tmp_path / "sitecustomize.py").write_text(slow)
    done = ended_run(["-m", "dynatui", "--headless", "--tensor-parallel", "3", "--device", "cuda:0"], tmp_path)
    assert (done.code, done.printed) == (2, "")
    assert done.errors.count("--device cuda:0 is a single device") == done.errors.count("\n") == 1


def refused(*asked: str, cwd: Path) -> str:
    """The one error line of a run that ends with exit code 2."""
    done = ended_run(["-m", "dynatui", "--headless", "--tensor-parallel", "2", "--prompt", "x", *asked], cwd)
    *progress, said = done.errors.splitlines()
    assert (done.code, done.printed) == (2, "")
    assert not any("dynatui: " in line for line in progress)
    return said


@pytest.mark.soak
def test_what_needs_the_whole_target_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "hf needs the whole target" in refused("--methods", "hf,ar", cwd=tmp_path)


@contextmanager
def running(count: int, cwd: Path, *further: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[int, int]]]:
    """Starts a run without a screen and waits until rounds are recorded; yields the launcher and its pids by rank."""
    recording = cwd / "run.jsonl"
    command = [
        sys.executable,
        "-m",
        "dynatui",
        *LONG,
        "--tensor-parallel",
        str(count),
        "--record",
        str(recording),
        *further,
    ]
    with (
        Path(os.devnull).open("r+b") as nowhere,
        (cwd / "errors").open("wb") as errors,
        subprocess.Popen(command, env=environment(), cwd=cwd, stdin=nowhere, stdout=nowhere, stderr=errors) as launcher,
    ):
        ranks = dict[int, int]()
        try:
            ranks = wait_for_ranks(launcher.pid, count)
            wait_for_rounds(recording, launcher)
            yield launcher, ranks
        finally:
            launcher.kill()
            seconds_until_gone(list(ranks.values()))


def wait_for_rounds(recording: Path, launcher: subprocess.Popen[bytes]) -> None:
    while not (recording.exists() and b'"type":"round"' in recording.read_bytes()):
        assert launcher.poll() is None, (recording.parent / "errors").read_text()
        time.sleep(0.02)


def ended(launcher: subprocess.Popen[bytes], ranks: dict[int, int]) -> int:
    """Exit code of the launcher; checks that all ranks end in time."""
    began = time.monotonic()
    code = launcher.wait(4 * GONE_WITHIN_S)
    seconds_until_gone(list(ranks.values()))
    assert time.monotonic() - began < GONE_WITHIN_S
    return code


def assert_readable(recording: Path) -> None:
    events = read(recording)
    assert isinstance(events[0], Run)
    assert any(isinstance(event, Round) for event in events)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_and_the_recording_is_whole(tmp_path: Path, number: signal.Signals) -> None:
    with running(2, tmp_path, *SLOWLY) as (launcher, ranks):
        launcher.send_signal(number)
        assert ended(launcher, ranks) == 130
    assert isinstance(read(tmp_path / "run.jsonl")[-1], Summary)
    assert "Traceback" not in (tmp_path / "errors").read_text()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("rank", "code", "said"),
    [(0, 137, "the leading process was ended by SIGKILL"), (1, 3, "process 1 of the target was ended by SIGKILL")],
)
def test_a_rank_that_is_killed_ends_all(
    tmp_path: Path, alone: Callable[[], None], rank: int, code: int, said: str
) -> None:
    with running(2, tmp_path, *SLOWLY) as (launcher, ranks):
        alone()
        os.kill(ranks[rank], signal.SIGKILL)
        assert ended(launcher, ranks) == code
    errors = (tmp_path / "errors").read_text()
    assert errors.splitlines()[-1] == f"dynatui: {said}"
    assert "interrupted" not in errors
    assert "Traceback" not in errors
    assert_readable(tmp_path / "run.jsonl")


def test_a_killed_launcher_ends_all_and_the_recording_is_whole(tmp_path: Path, alone: Callable[[], None]) -> None:
    with running(2, tmp_path, *SLOWLY) as (launcher, ranks):
        alone()
        launcher.kill()
        ended(launcher, ranks)
    assert isinstance(read(tmp_path / "run.jsonl")[-1], Summary)
    assert "Traceback" not in (tmp_path / "errors").read_text()


FAILING = """
import os
from pathlib import Path
if os.environ.get("RANK") == {rank!r}:
    from decoder.forward.hf import ModuleForward
    usual = ModuleForward.forward
    def forward(*given):
        if Path("failing").exists():
            raise ValueError("an error of its own")
        return usual(*given)
    ModuleForward.forward = forward
"""
"""Makes the passes of a rank fail once the file `failing` exists."""


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_the_leader_alone_serves_metrics_until_an_exception_in_a_rank_ends_all_and_is_told(
    tmp_path: Path, alone: Callable[[], None], rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that tried to serve on the same port would fail and end the run."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    (tmp_path / "sitecustomize.py").write_text(FAILING.format(rank=str(rank)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running(2, tmp_path, "--metrics-port", str(port), "--speed", "0.2") as (launcher, ranks):
        page = answer(f"http://127.0.0.1:{port}/metrics").page
        alone()
        (tmp_path / "failing").touch()
        assert ended(launcher, ranks) in (1, 3)
    counted = by_method(page, "vllm:generation_tokens_total")
    assert counted.keys() in ({"dynatree"}, {"dynatree", "ar"})  # a method appears once it has started
    assert max(counted.values()) > 0
    errors = (tmp_path / "errors").read_text()
    assert errors.count("metrics at") == 1
    assert "an error of its own" in errors
    assert_readable(tmp_path / "run.jsonl")


def on_screen(start: Start, *further: str) -> tuple[Any, dict[int, int]]:
    terminal = start("-m", "dynatui", "--tensor-parallel", "2", *FLOAT32, *further, size=(140, 40))
    ranks = wait_for_ranks(terminal.child.pid, 2)
    terminal.wait_for("2 processes on cpu")
    return terminal, ranks


@pytest.mark.soak
def test_ctrl_z_stops_the_launcher_too_fg_goes_on_and_a_key_ends_all(start: Start, alone: Callable[[], None]) -> None:
    job = ("-m", "dynatui", "--tensor-parallel", "2", *FLOAT32)
    terminal = start("-m", "tests.dynatui.one_job_shell", *job, size=(140, 40))
    terminal.wait_for("2 processes on cpu")
    (launcher,) = children(terminal.child.pid)
    ranks = wait_for_ranks(launcher, 2)
    terminal.send("\x1a")
    terminal.wait_for(STOPPED)
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1
    terminal.send("\n")
    assert terminal.wait_until(lambda: terminal.written.count(ENTER) == 2)
    terminal.wait_for("2 processes on cpu")
    alone()
    terminal.send("q")
    assert terminal.end(GONE_WITHIN_S) == 0
    assert seconds_until_gone(list(ranks.values())) < GONE_WITHIN_S
    assert_left_clean(terminal, screens=2)
    assert_modes_given_back(terminal)
    assert "--tensor-parallel 2" in terminal.afterwards


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_rank_that_is_killed_leaves_a_clean_terminal(start: Start, alone: Callable[[], None], rank: int) -> None:
    terminal, ranks = on_screen(start, *SLOWLY)
    alone()
    os.kill(ranks[rank], signal.SIGKILL)
    assert terminal.end(GONE_WITHIN_S) == (137 if rank == 0 else 3)
    assert seconds_until_gone(list(ranks.values())) < GONE_WITHIN_S
    assert_left_clean(terminal)
    assert_modes_given_back(terminal)
    assert "was ended by SIGKILL" in terminal.afterwards


@pytest.mark.soak
def test_fifty_kills_at_random_times_leave_no_process_a_whole_recording_and_a_clean_terminal(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, took, drawn, recorded = random.Random(0), list[float](), 0, 0
    for kill in range(KILLS):
        recording, count = tmp_path / f"{kill}.jsonl", chance.choice((2, 3))
        terminal = start("-m", "dynatui", "--tensor-parallel", str(count), *FLOAT32, "--record", str(recording))
        ranks = wait_for_ranks(terminal.child.pid, count)
        terminal.read(chance.uniform(0, LATEST_S))
        with suppress(ProcessLookupError):
            os.kill(ranks[chance.randrange(count)], signal.SIGKILL)
        began = time.monotonic()
        terminal.end(2 * GONE_WITHIN_S)
        seconds_until_gone(list(ranks.values()))
        took.append(time.monotonic() - began)
        assert took[-1] < GONE_WITHIN_S, kill
        assert_modes_given_back(terminal)
        if ENTER in terminal.written:
            drawn += 1
            assert_left_clean(terminal)
        if recording.exists() and recording.read_bytes():
            recorded += 1
            assert isinstance(read(recording)[0], Run)
    with capsys.disabled():
        print(f"\n{KILLS} kills, {drawn} with a screen, {recorded} with a recording; {max(took):.1f} s at most")  # noqa: T201 - what a soak is run for
    assert recorded

"""Tests of steps: they run one by one within time limits, are kept in one file, and can be continued.

A step ends when its runner ends.
"""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from benchmarks import archive, gpu, steps
from benchmarks.archive import NAME, OUTPUT, STATUS, Result, Status, latest_results, packed, unpacked
from benchmarks.dry_run import dry
from benchmarks.steps import FOLDER, RUNNING, Step, run_all
from decoder.errors import ConfigError
from tests.dynatui.killed_runs import KilledRuns, marked, program

GOOD = Step("good", "prints", ("-c", "print('well')"), 30)
BAD = Step("bad", "fails", ("-c", "import sys; print('no'); sys.exit(3)"), 30)
LONELY = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("both run", flush=True)
time.sleep(600)
"""
"""A step that starts two processes, one in a new session, and then waits."""


WHOLE = packed({"good": Result(Status("done", 0, 1.0, "2026-01-01T00:00:00Z", GOOD.command, {}), {OUTPUT: b"well"})})


class Runs:
    """Runs the program with given steps and keeps its messages."""

    def __init__(self, output: Path, patch: pytest.MonkeyPatch) -> None:
        self.output = output
        self.said: list[str] = []
        patch.setattr(gpu, "say", self.said.append)

    def __call__(self, *steps: Step, options: Sequence[str] = ()) -> int:
        self.said.clear()
        return gpu.main(["--output", str(self.output), *options], steps)

    def result(self, step: Step) -> Result:
        return latest_results([self.output])[step.name]

    def state(self, step: Step) -> str | None:
        found = steps.status(step, latest_results([self.output]))
        return found.state if found else None

    def text(self, step: Step) -> str:
        return self.result(step).files[OUTPUT].decode()

    @property
    def began(self) -> list[str]:
        return [line.split(":")[0] for line in self.said if "at most" in line]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path / "out", monkeypatch)


def counting(path: Path, name: str = "counting", code: int = 0) -> Step:
    """A step that writes a character to a file in each run."""
    note = f"open({str(path)!r}, 'a').write('x'); import sys; sys.exit({code})"
    return Step(name, "counts", ("-c", note), 30)


# Kept results


def test_what_a_step_says_and_how_it_ended_is_kept(runs: Runs) -> None:
    assert runs(GOOD) == 0
    assert runs.text(GOOD) == "well\n"
    found = runs.result(GOOD).status
    assert (found.state, found.exit_code, found.command) == ("done", 0, GOOD.command)
    assert 0 <= found.seconds < 30


def test_all_is_in_one_file_that_any_tar_reads(runs: Runs) -> None:
    step = Step("files", "writes", ("-c", "import sys; open(sys.argv[1], 'w').write('{}')", f"{FOLDER}/a.json"), 30)
    assert runs(GOOD, BAD, step) == 1
    assert [path.name for path in runs.output.iterdir()] == [NAME]
    with tarfile.open(runs.output / NAME) as found:
        of_good, of_bad = ([f"{name}/{file}" for file in (STATUS, OUTPUT)] for name in ("good", "bad"))
        assert found.getnames() == [*of_good, *of_bad, f"files/{STATUS}", "files/a.json", f"files/{OUTPUT}"]


def test_results_are_what_they_were_before_they_were_packed() -> None:
    status = Status("failed", 3, 1.5, "2026-01-01T00:00:00Z", ("-c", "x"), {"A": "1"}, ("large.bin",))
    results = {"one": Result(status, {OUTPUT: b"\xff\n", "a.json": b"{}"}), "two": Result(status, {})}
    assert unpacked(packed(results)) == results


def test_of_much_that_a_step_says_the_beginning_and_the_end_are_kept(runs: Runs) -> None:
    step = Step("loud", "shouts", ("-c", "print('first'); print('x' * 10**6); print('last')"), 30)
    assert runs(step) == 0
    text = runs.text(step)
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast\n")
    assert f"\n[{10**6 + 12 - 150_000} bytes are left out]\n" in text
    assert len(text) < 150_100


def test_a_file_for_which_there_is_no_room_is_named(runs: Runs) -> None:
    write = (
        "import os, sys; [open(f'{sys.argv[1]}/{n}', 'wb').write(os.urandom(s)) for n, s in (('a', 9), ('b', 10**6))]"
    )
    step = Step("large", "writes", ("-c", write, FOLDER), 30)
    assert runs(step) == 0
    assert sorted(runs.result(step).files) == ["a", OUTPUT]
    assert runs.result(step).status.left_out == ("b",)


def test_the_file_never_exceeds_16_mib_however_much_the_steps_write() -> None:
    most = archive.BEGINNING_BYTES + archive.END_BYTES + archive.FILES_BYTES
    status = Status("done", 0, 1.0, "2026-01-01T00:00:00Z", ("-c", "x" * 1000), {})
    assert len(packed({step.name: Result(status, {"noise": Random(1).randbytes(most)}) for step in gpu.STEPS})) < 2**24


def test_a_step_has_its_own_environment_and_the_user_s_settings_do_not_count(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    names = "OF_MINE", "DYNATUI_CONFIG", "PYTHONPATH"
    step = Step("env", "tells", ("-c", f"import os; print(*map(os.environ.get, {names}))"), 30, {"OF_MINE": "1"})
    assert runs(step) == 0
    assert runs.text(step).split() == ["1", os.devnull, f"{steps.ROOT}{os.pathsep}elsewhere"]
    assert runs.result(step).status.environment == {"OF_MINE": "1"}


# Continuation


def test_a_step_that_is_done_is_not_run_again(runs: Runs, tmp_path: Path) -> None:
    step = counting(tmp_path / "runs")
    assert [runs(step), runs(step)] == [0, 0]
    assert (tmp_path / "runs").read_text() == "x"
    assert runs.began == []


def test_a_step_that_has_become_another_command_is_run_again(runs: Runs, tmp_path: Path) -> None:
    runs(Step("counting", "counts", GOOD.command, 30))
    assert runs(counting(tmp_path / "runs")) == 0
    assert (tmp_path / "runs").read_text() == "x"


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_bare_machine_goes_on_from_the_file_of_an_earlier_run_and_brings_back_all_of_it(
    runs: Runs, tmp_path: Path, *, as_folder: bool
) -> None:
    step, brought = counting(tmp_path / "runs"), tmp_path / "brought"
    runs(step, BAD)
    runs.output.rename(brought)
    place = brought if as_folder else brought / NAME
    assert runs(step, BAD, GOOD, options=["--earlier", str(place)]) == 1
    assert runs.began == ["good", "bad"]
    assert (tmp_path / "runs").read_text() == "x"
    assert [runs.state(each) for each in (step, BAD, GOOD)] == ["done", "failed", "done"]


def test_of_several_files_the_latest_result_of_each_step_counts(tmp_path: Path) -> None:
    def kept(name: str, began_at: str, **states: archive.State) -> Path:
        results = {step: Result(Status(state, 0, 1.0, began_at, (), {}), {}) for step, state in states.items()}
        (tmp_path / name).write_bytes(packed(results))
        return tmp_path / name

    old = kept("z.tar.gz", "2026-01-01T00:00:00Z", one="done", two="failed")
    new = kept("a.tar.gz", "2026-01-02T00:00:00Z", one="failed", three="done")
    begun = kept("b.tar.gz", "2026-01-02T00:00:00Z", three="stopped")
    for places in ([old, new, begun], [begun, new, old], [tmp_path]):
        states = {name: result.status.state for name, result in latest_results(places).items()}
        assert states == {"one": "failed", "two": "failed", "three": "done"}


@pytest.mark.parametrize("broken", [b"", b"no archive", WHOLE[:-12], WHOLE[:40]], ids=len)
def test_a_file_that_is_not_whole_is_refused_in_one_line_and_left_as_it_is(
    runs: Runs, tmp_path: Path, broken: bytes
) -> None:
    (tmp_path / "broken.tar.gz").write_bytes(broken)
    assert runs(GOOD, options=["--earlier", str(tmp_path / "broken.tar.gz")]) == 2
    assert len(runs.said) == 1
    assert "broken.tar.gz is a damaged archive of results; leave it out, or remove it" in runs.said[0]
    assert not runs.output.exists()
    assert (tmp_path / "broken.tar.gz").read_bytes() == broken


@pytest.mark.parametrize("entries", [{"x/output.txt": b""}, {f"x/{STATUS}": b"{"}, {f"x/{STATUS}": b'{"a": 1}'}])
def test_other_archives_are_refused(tmp_path: Path, entries: dict[str, bytes]) -> None:
    with tarfile.open(tmp_path / "other.tar.gz", "w:gz") as other:
        for name, data in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            other.addfile(entry, io.BytesIO(data))
    with pytest.raises(ConfigError, match="a damaged archive of results"):
        latest_results([tmp_path])


def test_a_file_that_is_not_there_is_named(runs: Runs, tmp_path: Path) -> None:
    assert runs(GOOD, options=["--earlier", str(tmp_path / "none")]) == 2
    assert runs.said == [f"gpu.py: there is no {tmp_path}/none; name the file of an earlier run, or its folder"]


def test_a_folder_that_cannot_be_made_is_told_in_one_line(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runs.output = tmp_path / "file" / "out"
    assert runs(GOOD) == 2
    assert "cannot write" in runs.said[-1]


# Failures, time limits and leftover processes


def test_a_step_that_fails_is_recorded_with_its_last_words_and_the_next_one_runs(runs: Runs) -> None:
    assert runs(BAD, GOOD) == 1
    assert (runs.state(BAD), runs.state(GOOD)) == ("failed", "done")
    assert runs.text(BAD) == "no\n"
    assert runs.result(BAD).status.exit_code == 3
    assert any(line.startswith("bad: failed after ") and line.endswith(", exit code 3: no") for line in runs.said)


def test_what_failed_is_tried_again_after_all_that_never_ran(runs: Runs) -> None:
    runs(BAD)
    assert runs(BAD, GOOD) == 1
    assert runs.began == ["good", "bad"]


def test_a_step_that_takes_too_long_is_interrupted_and_may_tell_what_it_knows(runs: Runs) -> None:
    patient = (
        "import time\ntry:\n print('begun', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n print('so far')"
    )
    step = Step("slow", "waits", ("-c", patient), 3)
    began = time.monotonic()
    assert runs(step, GOOD) == 1
    assert time.monotonic() - began < 30
    assert (runs.state(step), runs.state(GOOD)) == ("timed out", "done")
    assert runs.text(step) == "begun\nso far\n"


def test_a_step_that_does_not_listen_is_ended_with_all_that_it_started(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", "deaf")
    step = Step("deaf", "waits", ("-c", f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN){LONELY}"), 3)
    assert runs(step) == 1
    found = runs.result(step).status
    assert (found.state, found.exit_code) == ("timed out", None)
    assert runs.text(step) == "both run\n"
    assert gone("MARK=deaf")


def test_what_a_step_leaves_behind_does_not_disturb_the_next(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK", "careless")
    step = Step("careless", "forgets", ("-c", LONELY.replace("time.sleep(600)\n", "")), 30)
    assert runs(step) == 0
    assert marked("MARK=careless") == []


def gone(mark: str) -> bool:
    """Waits until no process has `mark` in its environment; returns whether that happened within 20 s."""
    until = time.monotonic() + 20
    while marked(mark):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def running(home: Path, step: Step) -> Iterator["subprocess.Popen[bytes]"]:
    """Starts the program with one step and waits until the step runs; all processes have MARK={home} as mark."""
    said = home / "out" / RUNNING / OUTPUT
    environment = os.environ | {"MARK": str(home)}
    command = [sys.executable, str(program(home, [step])), "--output", str(home / "out")]
    with subprocess.Popen(command, env=environment) as started:
        try:
            until = time.monotonic() + 60
            while not said.exists() or b"both run" not in said.read_bytes():
                assert time.monotonic() < until
                time.sleep(0.02)
            assert len(marked(f"MARK={home}")) == 5  # the runner, the keeper, the step, and the step's two processes
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_step_ends_with_its_runner_however_that_ends_and_with_all_that_it_started(
    tmp_path: Path, how: signal.Signals
) -> None:
    with running(tmp_path, Step("lonely", "waits", ("-c", LONELY), 500)) as runner:
        runner.send_signal(how)
        runner.wait()
        assert gone(f"MARK={tmp_path}")
    assert latest_results([tmp_path / "out"])["lonely"].status.state == "stopped"


def test_a_step_ends_with_its_keeper(tmp_path: Path) -> None:
    in_its_group = LONELY.replace(", start_new_session=True", "")
    with running(tmp_path, Step("lonely", "waits", ("-c", in_its_group), 500)) as runner:
        (keeper,) = [pid for pid, command in marked(f"MARK={tmp_path}") if b"keeper.py" in command]
        os.kill(keeper, signal.SIGKILL)
        assert runner.wait() == 1
        assert gone(f"MARK={tmp_path}")
    found = latest_results([tmp_path / "out"])["lonely"].status
    assert (found.state, found.exit_code) == ("failed", None)


def test_what_cannot_be_killed_is_not_waited_for() -> None:
    stuck = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
    keeping = (
        "import sys; sys.path.insert(0, sys.argv[1]); import keeper; "
        "keeper.os.kill = lambda *_: None; keeper.PATIENCE_S = 0.1; keeper.main(['0.6', '0.3', *sys.argv[2:]])"
    )
    asked = [sys.executable, "-c", keeping, str(steps.KEEPER.parent), sys.executable, "-c", stuck]
    began = time.monotonic()
    with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout
        pid, ended = map(json.loads, keeper.stdout.read().splitlines())
    os.kill(pid, signal.SIGKILL)
    assert time.monotonic() - began < 30
    assert ended == {"exit_code": None, "in_time": False}


def test_a_step_that_somebody_kills_has_failed(runs: Runs) -> None:
    step = Step("killed", "dies", ("-c", "import os; os.kill(os.getpid(), 9)"), 30)
    assert runs(step, GOOD) == 1
    assert (runs.state(step), runs.result(step).status.exit_code, runs.state(GOOD)) == ("failed", -9, "done")
    assert any(line.endswith("exit code -9: the step printed nothing") for line in runs.said)


def test_a_step_that_ended_with_the_runner_is_tried_after_all_that_never_ran(runs: Runs) -> None:
    def take_the_machine_down(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_ended", take_the_machine_down)
        with pytest.raises(KeyboardInterrupt):
            runs(BAD, GOOD)
    assert runs.state(BAD) == "stopped"
    assert runs(BAD, GOOD) == 1
    assert runs.began == ["good", "bad"]


# Time limits of a run


class Clock:
    """Fake clock by which each step takes a share of its time limit."""

    def __init__(self, patch: pytest.MonkeyPatch, share: float) -> None:
        self.now, self.began = 0.0, list[tuple[str, float]]()

        def run(step: Step, _output: Path, results: archive.Results, _say: object) -> archive.Results:
            self.began.append((step.name, self.now))
            self.now += share * step.limit_s
            return {**results, step.name: Result(Status("done", 0, 0.0, "", step.command, step.environment), {})}

        patch.setattr(steps, "run", run)

    def __call__(self) -> float:
        return self.now


def taking(name: str, limit_s: float) -> Step:
    return Step(name, "takes", GOOD.command, limit_s)


def test_no_step_begins_that_might_end_too_late_but_a_shorter_one_that_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock, said = Clock(monkeypatch, 1.0), list[str]()
    todo = [taking("one", 300), taking("two", 300), taking("three", 225), taking("four", 1)]
    run_all(todo, tmp_path, {}, 9, said.append, clock)
    assert [name for name, _ in clock.began] == ["one", "three"]
    assert clock.now == 9 * 60 - steps.RESERVE_S
    assert said == ["no time is left for two, four; run the same command again"]


@pytest.mark.parametrize(("share", "most"), [(1.0, 9), (0.5, 5)])
def test_runs_of_nine_minutes_do_all_steps_and_a_minute_is_left_of_ten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, share: float, most: int
) -> None:
    clock, ends = Clock(monkeypatch, share), list[float]()
    found: archive.Results = {}
    while todo := steps.pending(gpu.STEPS, found):
        clock.now = 0.0
        found = run_all(todo, tmp_path, found, gpu.MINUTES, lambda _: None, clock)
        ends.append(clock.now)
    assert sorted(name for name, _ in clock.began) == sorted(step.name for step in gpu.STEPS)
    assert len(ends) <= most
    assert max(ends) <= 9 * 60 - steps.RESERVE_S
    assert gpu.MINUTES == 9


def test_the_first_five_runs_have_time_for_what_matters_most_even_if_each_step_takes_all_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock(monkeypatch, 1.0)
    found: archive.Results = {}
    for _ in range(5):
        clock.now = 0.0
        found = run_all(steps.pending(gpu.STEPS, found), tmp_path, found, gpu.MINUTES, lambda _: None, clock)
    first = "machine waits calls shapes profile plain bfloat16 truncated llama auto growth"
    assert set(first.split()) <= {name for name, _ in clock.began}


def test_a_run_that_has_no_time_left_says_what_to_do(runs: Runs) -> None:
    late = Step("late", "prints", ("-c", "print('late')"), 120)
    assert runs(GOOD, late, options=["--minutes", "1"]) == 1
    assert (runs.state(GOOD), runs.state(late)) == ("done", None)
    assert "no time is left for late; run the same command again" in runs.said
    assert runs(GOOD, late) == 0


# Options


def test_one_step_alone_may_be_asked_for_whatever_its_state(runs: Runs, tmp_path: Path) -> None:
    step = counting(tmp_path / "runs")
    runs(step)
    assert runs(BAD, step, GOOD, options=["--only", "counting"]) == 0
    assert (tmp_path / "runs").read_text() == "xx"
    assert (runs.state(BAD), runs.state(GOOD)) == (None, None)


def test_a_step_that_is_unknown_is_refused_with_the_known_ones(runs: Runs) -> None:
    assert runs(GOOD, BAD, options=["--only", "goof"]) == 2
    assert runs.said == ["gpu.py: there is no step goof; choose from good, bad"]


def test_the_list_shows_every_step_with_its_state_and_runs_none(runs: Runs, tmp_path: Path) -> None:
    runs(BAD, GOOD)
    step = counting(tmp_path / "runs")
    assert runs(GOOD, BAD, step, options=["--list"]) == 0
    lines = "\n".join(runs.said).splitlines()
    assert [line.split()[0] for line in lines] == ["good", "bad", "counting"]
    assert ["done" in lines[0], "failed" in lines[1], "not run" in lines[2]] == [True] * 3
    assert not (tmp_path / "runs").exists()


def test_a_run_ends_with_the_list(runs: Runs) -> None:
    runs(BAD, GOOD)
    last = runs.said[-1]
    runs(BAD, GOOD, options=["--list"])
    assert runs.said == [last]


def test_what_is_not_installed_is_named_with_what_to_do_in_one_line(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu.missing() == ""
    assert gpu.missing(("sys", "nonesuch", "neither")).startswith("gpu.py: not installed: nonesuch neither; ")
    assert "pip install --no-index -f wheels nonesuch neither" in gpu.missing(("nonesuch", "neither"))
    monkeypatch.setattr(gpu, "missing", lambda: "gpu.py: not installed: msgspec; do this")
    assert runs(GOOD) == 2
    assert runs.said == ["gpu.py: not installed: msgspec; do this"]
    assert not runs.output.exists()
    assert runs(GOOD, options=["--list"]) == 0


# Random kills


SHORT = """
import pathlib, subprocess, sys, time
folder, seconds = sys.argv[1:]
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path(folder, "result.json").write_text("{}")
time.sleep(float(seconds))
"""
ENDLESS_AT_FIRST = """
import pathlib, sys, time
begun = pathlib.Path(sys.argv[1])
if not begun.exists():
    begun.touch()
    time.sleep(600)
"""


def test_however_runs_and_steps_are_killed_all_steps_are_done_in_the_end_and_none_twice(tmp_path: Path) -> None:
    luck = Random(1)
    todo = [
        Step(f"s{number}", "waits", ("-c", SHORT, FOLDER, f"{luck.uniform(0, 0.4):.2f}"), 60) for number in range(9)
    ]
    walk = KilledRuns(tmp_path, todo, luck)
    for _ in range(5):
        walk.killed(within_s=0.8)
    walk.to_the_end()
    assert set(walk.done) == {step.name for step in todo}
    assert walk.kills["runner"] == 5
    assert walk.kills["step"] > 0


def test_every_step_is_selected_killed_with_its_run_and_gone_on_with(tmp_path: Path) -> None:
    begun = {step.name: tmp_path / step.name for step in gpu.STEPS}
    todo = [replace(step, command=("-c", ENDLESS_AT_FIRST, str(begun[step.name]))) for step in gpu.STEPS]
    walk = KilledRuns(tmp_path, todo, Random(1))
    for name, path in begun.items():
        walk.killed_in(name, now=path.exists)
    assert walk.done == {}
    walk.to_the_end()
    assert set(walk.done) == {step.name for step in todo}


UNLUCKY_AT_FIRST = """
import os, pathlib, sys, time, torch
assert torch.cuda.get_device_name() == "a fake device"
begun, folder, how = sys.argv[1:]
if not pathlib.Path(begun).exists():
    pathlib.Path(begun).touch()
    os.kill(os.getpid(), 9) if how == "dies" else time.sleep(600)
pathlib.Path(folder, "result.json").write_text("{}")
"""


def test_a_dry_run_repeats_a_step_that_was_killed_alone_or_with_its_run_and_loses_nothing(tmp_path: Path) -> None:
    todo = [
        Step(how, "ends too early at first", ("-c", UNLUCKY_AT_FIRST, str(tmp_path / how), FOLDER, how), 60)
        for how in ("dies", "waits")
    ]
    walk = KilledRuns(tmp_path, todo, Random(1), ["--dry-run"])
    walk.killed_in("dry-run.waits", now=(tmp_path / "waits").exists)
    assert walk.done == {}
    assert (tmp_path / "dies").exists()
    walk.to_the_end(most=1)
    assert {name: result.files["result.json"] for name, result in walk.done.items()} == {
        "dry-run.dies": b"{}",
        "dry-run.waits": b"{}",
    }


@pytest.mark.soak
def test_all_real_steps_are_killed_in_a_dry_run_and_then_done(tmp_path: Path) -> None:
    luck = Random(1)
    walk = KilledRuns(tmp_path, gpu.STEPS, luck, ["--dry-run"])
    for step in gpu.STEPS:
        walk.killed_in(dry(step).name, now=lambda: luck.random() < 0.02)
    walk.to_the_end(most=3)
    assert set(walk.done) == {dry(step).name for step in gpu.STEPS}, (tmp_path / "log.txt").read_text()

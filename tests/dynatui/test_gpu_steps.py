"""The first steps on a GPU: kept one by one, resumed, limited in time, and understood by what they call."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu, kernels
from benchmarks.gpu import FOLDER, OUTPUT, STATUS, STEPS, Step
from decoder.bench import job
from decoder.errors import ConfigError
from dynatui.cli import main as cli

pytestmark = pytest.mark.slow

GOOD = Step("good", "prints", ("-c", "print('well')"), 30)
BAD = Step("bad", "fails", ("-c", "import sys; print('no'); sys.exit(3)"), 30)
NAMES = [step.name for step in STEPS]
ABSENT = ("textual", "platformdirs", "pytest_asyncio")


class Runs:
    """Starts the program with steps of a test's own, and keeps what it says."""

    def __init__(self, output: Path, patch: pytest.MonkeyPatch) -> None:
        self.output = output
        self.said: list[str] = []
        patch.setattr(gpu, "say", self.said.append)

    def __call__(self, *steps: Step, options: Sequence[str] = ()) -> int:
        self.said.clear()
        return gpu.main(["--output", str(self.output), *options], steps)

    def state(self, step: Step) -> str | None:
        found = gpu.status(step, self.output)
        return found.state if found else None

    def text(self, step: Step) -> str:
        return (self.output / step.name / OUTPUT).read_text(encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path / "out", monkeypatch)


def counting(path: Path, name: str = "counting", code: int = 0) -> Step:
    """A step that notes each of its runs."""
    note = f"open({str(path)!r}, 'a').write('x'); import sys; sys.exit({code})"
    return Step(name, "counts", ("-c", note), 30)


# The runner


def test_what_a_step_says_and_how_it_ended_is_kept(runs: Runs) -> None:
    assert runs(GOOD) == 0
    assert runs.text(GOOD) == "well\n"
    found = gpu.status(GOOD, runs.output)
    assert found is not None
    assert (found.state, found.exit_code, found.command) == ("done", 0, GOOD.command)
    assert 0 <= found.seconds < 30


def test_a_step_that_is_done_is_not_run_again(runs: Runs, tmp_path: Path) -> None:
    step = counting(tmp_path / "runs")
    assert [runs(step), runs(step)] == [0, 0]
    assert (tmp_path / "runs").read_text() == "x"
    assert runs.said == []


def test_a_step_that_fails_is_recorded_and_the_next_one_runs(runs: Runs) -> None:
    assert runs(BAD, GOOD) == 1
    assert (runs.state(BAD), runs.state(GOOD)) == ("failed", "done")
    assert runs.text(BAD) == "no\n"
    found = gpu.status(BAD, runs.output)
    assert found is not None
    assert found.exit_code == 3


def test_what_failed_is_tried_again_after_all_that_never_ran(runs: Runs) -> None:
    runs(BAD)
    assert runs(BAD, GOOD) == 1
    began = [line.split(":")[0] for line in runs.said if "at most" in line]
    assert began == ["good", "bad"]


def test_a_step_that_was_stopped_with_the_runner_leaves_nothing_half(runs: Runs) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "_waited", interrupt)
        with pytest.raises(KeyboardInterrupt):
            runs(GOOD)
    assert runs.state(GOOD) is None
    assert not (runs.output / "good").exists()
    assert runs(GOOD) == 0
    assert sorted(path.name for path in runs.output.iterdir()) == ["good"]


def test_a_step_that_takes_too_long_is_interrupted_and_may_tell_what_it_knows(runs: Runs) -> None:
    patient = (
        "import time\ntry:\n print('begun', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n print('so far')"
    )
    step = Step("slow", "waits", ("-c", patient), 2)
    began = time.monotonic()
    assert runs(step, GOOD) == 1
    assert time.monotonic() - began < 20
    assert (runs.state(step), runs.state(GOOD)) == ("timed out", "done")
    assert runs.text(step) == "begun\nso far\n"


def test_a_step_that_does_not_listen_is_ended_with_all_that_it_started(runs: Runs, tmp_path: Path) -> None:
    deaf = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    step = Step("deaf", "waits", ("-c", deaf), 2)
    assert runs(step) == 1
    found = gpu.status(step, runs.output)
    assert found is not None
    assert (found.state, found.exit_code) == ("timed out", None)
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
        assert time.monotonic() < deadline


def test_files_of_a_step_are_kept_with_what_it_said(runs: Runs) -> None:
    step = Step("files", "writes", ("-c", "import sys; open(sys.argv[1], 'w').write('{}')", f"{FOLDER}/a.json"), 30)
    assert runs(step) == 0
    assert sorted(path.name for path in (runs.output / "files").iterdir()) == ["a.json", OUTPUT, STATUS]


def test_a_step_has_its_own_environment_and_the_user_s_settings_do_not_count(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    names = "OF_MINE", "DYNATUI_CONFIG", "PYTHONPATH"
    step = Step("env", "tells", ("-c", f"import os; print(*map(os.environ.get, {names}))"), 30, {"OF_MINE": "1"})
    assert runs(step) == 0
    assert runs.text(step).split() == ["1", os.devnull, f"{gpu.ROOT}{os.pathsep}elsewhere"]
    found = gpu.status(step, runs.output)
    assert found is not None
    assert found.environment == {"OF_MINE": "1"}


def test_no_step_begins_that_might_end_too_late(runs: Runs) -> None:
    late = Step("late", "prints", ("-c", "print('late')"), 120)
    assert runs(GOOD, late, options=["--minutes", "1"]) == 1
    assert (runs.state(GOOD), runs.state(late)) == ("done", None)
    assert runs.said[-1] == "no time for late; run the same command again"
    assert runs(GOOD, late) == 0


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


def test_a_status_that_cannot_be_read_counts_as_none(runs: Runs) -> None:
    runs(GOOD)
    (runs.output / "good" / STATUS).write_text("{", encoding="utf-8")
    assert runs.state(GOOD) is None
    assert runs(GOOD) == 0


def test_what_is_not_installed_is_named_with_what_to_do_in_one_line(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu.missing() == ""
    assert gpu.missing(("sys", "nonesuch", "neither")).startswith("gpu.py: not installed: nonesuch neither; ")
    assert "pip install --no-index -f wheels nonesuch neither" in gpu.missing(("nonesuch", "neither"))
    monkeypatch.setattr(gpu, "missing", lambda: "gpu.py: not installed: msgspec; do this")
    assert runs(GOOD) == 2
    assert runs.said == ["gpu.py: not installed: msgspec; do this"]
    assert runs.state(GOOD) is None
    assert runs(GOOD, options=["--list"]) == 0


# The steps


def test_each_step_takes_nine_minutes_at_most_and_all_together_forty_five() -> None:
    assert max(step.limit_s for step in STEPS) <= 9 * 60
    assert sum(step.limit_s for step in STEPS) <= gpu.MINUTES * 60 == 45 * 60
    assert len(set(NAMES)) == len(NAMES)
    assert NAMES[-1] == "compile"


def test_the_slowest_attention_s_rank_is_what_three_steps_differ_in() -> None:
    by_name = {step.name: step for step in STEPS}
    assert by_name["shapes"].environment == {}
    assert by_name["cudnn"].environment == {gpu.CUDNN: "0"}
    assert by_name["cudnn-last"].environment == {gpu.CUDNN: "1"}
    assert by_name["cudnn"].command == by_name["cudnn-last"].command


@pytest.mark.parametrize("step", [step for step in STEPS if "dynatui" in step.command], ids=lambda step: step.name)
def test_a_measurement_is_understood_by_the_command_line(
    step: Step, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def stop(given: Any, _note: object) -> None:
        asked.append(given)
        raise KeyboardInterrupt

    for name in ("measure_rounds", "measure_texts"):
        monkeypatch.setattr(job, name, stop)
    monkeypatch.chdir(gpu.ROOT)
    assert step.command[:2] == ("-m", "dynatui")
    arguments = [argument.replace(FOLDER, str(tmp_path)) for argument in step.command[2:]]
    assert cli.main(arguments) == 130
    assert len(asked) == 1
    if isinstance(asked[0], job.OnRounds):
        load = asked[0].load.keywords  # type: ignore[attr-defined]
        assert load["device"] == "cuda"
        assert load["compiled"] is (step.name == "compile")
        assert asked[0].repeats == 3
    else:
        assert (asked[0].device, asked[0].with_baselines, len(asked[0].prompts)) == ("cuda", False, 1)


def test_an_option_that_does_not_exist_would_be_noticed() -> None:
    assert cli.main(["bench", "speed", "--warp", "9"]) == 2


@pytest.mark.parametrize("step", [step for step in STEPS if "pytest" in step.command], ids=lambda step: step.name)
def test_tests_are_found_where_plugins_of_the_project_are_missing(step: Step) -> None:
    collected = subprocess.run(
        [sys.executable, *step.command, "-p", "no:asyncio", "-p", "no:syrupy", "-p", "no:xdist", "--collect-only"],
        cwd=gpu.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert collected.returncode == 0, collected.stdout + collected.stderr
    found = [line for line in collected.stdout.splitlines() if "::" in line]
    assert len(found) > (80 if step.name == "tests" else 3)
    assert {line.partition("::")[0].rpartition("/")[2] for line in found} >= {"test_graphs.py"}


def test_the_profile_s_options_exist_and_the_machine_s_program_is_one() -> None:
    by_name = {step.name: step.command for step in STEPS}
    program, *options = by_name["profile"]
    assert (gpu.ROOT / program).samefile(str(kernels.__file__))
    wanted = kernels.options().parse_args(options)
    assert (wanted.shapes, wanted.tree, wanted.rounds) == (("pythia-2.8b", "pythia-70m"), (8, 64), 20)
    compile(by_name["machine"][1], "machine", "exec")
    checked = {name for name in NAMES if name in ("profile", "machine") or {"dynatui", "pytest"} & set(by_name[name])}
    assert checked == set(NAMES)


# Where the screen's packages are missing


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment without them."""
    absent = tmp_path / "absent"
    absent.mkdir()
    for name in ABSENT:
        (absent / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name='{name}')\n", encoding="utf-8")
    paths = os.pathsep.join((str(absent), str(gpu.ROOT)))
    return os.environ | {"PYTHONPATH": paths, "DYNATUI_CONFIG": os.devnull, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def shape(tmp_path: Path) -> str:
    config = {"model_type": "gpt_neox", "vocab_size": 288, "max_position_embeddings": 512, "hidden_size": 16}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def without_a_gpu(command: Sequence[str], shape: str, folder: Path) -> list[str]:
    """A step's command as it is, but for the models, the device and the dtype."""
    changed = {gpu.PYTHIA: f"{shape}:{shape}", "cuda": "cpu", "float16": "float32", "256": "32", "3": "1"}
    found = [changed.get(argument, argument).replace(FOLDER, str(folder)) for argument in command]
    return found if "cpu" in found else [*found, "--device", "cpu", "--context", "32", "--rounds", "2"]


@pytest.mark.parametrize(("name", "code"), [("cudnn", 0), ("profile", 1)])
def test_a_measurement_runs_without_the_packages_of_the_screen(
    bare: dict[str, str], shape: str, tmp_path: Path, name: str, code: int
) -> None:
    step = next(step for step in STEPS if step.name == name)
    done = subprocess.run(
        [sys.executable, *without_a_gpu(step.command, shape, tmp_path)],
        cwd=gpu.ROOT,
        env=bare,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "native CPU kernels" in done.stdout
    if name == "profile":  # a CPU has no kernels
        assert "no kernel was seen" in done.stdout
        assert json.loads((tmp_path / "kernels.json").read_text())["about"]["path"] == "host"
    else:
        assert json.loads((tmp_path / "result.jsonl").read_text())["setup"]["path"] == "host"


def test_the_runner_itself_needs_none_of_them(bare: dict[str, str], tmp_path: Path) -> None:
    asked = shlex.split(f"benchmarks/gpu.py --output {tmp_path / 'out'} --list")
    done = subprocess.run([sys.executable, *asked], cwd=gpu.ROOT, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == NAMES


def test_packages_that_are_absent_in_these_tests_are_absent(bare: dict[str, str]) -> None:
    for name in ABSENT:
        done = subprocess.run([sys.executable, "-c", f"import {name}"], env=bare, capture_output=True, check=False)
        assert done.returncode != 0


def test_options_are_refused_as_everywhere() -> None:
    with pytest.raises(SystemExit):
        gpu.main([])
    with pytest.raises((SystemExit, argparse.ArgumentError, ConfigError)):
        kernels.main(["--tree", "eight"])

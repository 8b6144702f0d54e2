"""Tests of the GPU steps: they include every test that needs a GPU, their programs accept their options, and dry runs
of them measure nothing.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks import captures, gpu, kernels
from benchmarks.archive import OUTPUT, Result, Status, latest_results
from benchmarks.dry_run import ON_FAKE_DEVICE, SMALLER, dry
from benchmarks.gpu import STEPS
from benchmarks.steps import FOLDER, ROOT, Step, pending
from decoder.bench import job
from decoder.errors import ConfigError
from decoder.sampling.settings import Sampling
from dynatui.cli import main as cli
from tests.fake_cuda import run

NAMES = [step.name for step in STEPS]
BY_NAME = {step.name: step for step in STEPS}
OF_TESTS = [step for step in STEPS if "pytest" in step.command]
OF_PROGRAMS = [step for step in STEPS if step.command[0].startswith("benchmarks/")]
ABSENT = ("textual", "platformdirs", "pytest_asyncio", "syrupy", "loky", "datasets", "optuna", "pexpect", "pyte")
"""Packages that GPU machines lack and the steps do not need."""

ENDS = {"truncated": (0, ""), "profile": (1, "no kernel was recorded"), "auto": (1, "no CUDA graphs are captured")}
"""Exit code and last words of some steps without a GPU."""


@dataclass(frozen=True)
class Ran:
    """Results of commands of the steps."""

    measured: list[tuple[int, str]]
    """Exit code and output of each of `ENDS`."""
    result: str
    """Text of the results file."""
    collected: list[list[str]]
    """Node ids of the tests that each step of tests selects, and at last of all tests that need a GPU."""
    in_dry_runs: list[list[str]]
    """Node ids of the tests that each step of tests selects in a dry run."""


# The steps


def test_a_warning_fails_no_test_of_a_step(tmp_path: Path) -> None:
    lines = "import pytest, warnings", f"@pytest.mark.{'gpu'}", "def test_it(): warnings.warn('harmless')"
    (tmp_path / "test_it.py").write_text("\n".join(lines), encoding="utf-8")
    step = gpu._tests("x", "x", 60, "it", str(tmp_path / "test_it.py"))
    command = [sys.executable, *step.command, "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **step.environment}, capture_output=True, check=False
    )
    assert (done.returncode, b"1 passed, 1 warning" in done.stdout) == (0, True), done.stdout


def test_steps_have_names_of_their_own_and_measure_nothing_twice() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert len({(step.command, tuple(step.environment.items())) for step in STEPS}) == len(STEPS)
    assert BY_NAME["cudnn"].environment == {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "0"}
    assert {step.name for step in STEPS if step.environment} == {"cudnn", *(step.name for step in OF_TESTS)}


def test_no_two_steps_make_a_pair_that_one_command_could_measure_as_both_do() -> None:
    several = {"--context", "--trees", "--sampling"}
    """Options that take several values, so that one command can measure all of them with one pair."""

    def apart(step: Step) -> tuple[str, ...]:
        words = [option for option in step.command if option not in {"--json", f"{FOLDER}/result.jsonl"}]
        kept = [word for place, word in enumerate(words) if not {word, words[place - 1]} & several]
        return (*kept, *step.environment.values())

    # If texts of 16,384 tokens fail, the rounds after short texts must not be lost.
    made = [apart(step) for step in STEPS if "--shapes" in step.command and step.name != "growth"]
    assert len(set(made)) == len(made) > 1


TRUNCATED = Sampling(1.0, top_k=50, top_p=0.95)
SAMPLED = dict.fromkeys(("truncated", "llama-truncated", "embedded-sampled"), TRUNCATED)


@pytest.mark.parametrize("step", [step for step in STEPS if "dynatui" in step.command], ids=lambda step: step.name)
def test_a_measurement_is_understood_by_the_command_line(
    step: Step, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def stop(given: Any, _note: object, _show: object) -> None:
        asked.append(given)
        raise KeyboardInterrupt

    for name in ("measure_rounds", "measure_texts"):
        monkeypatch.setattr(job, name, stop)
    monkeypatch.chdir(ROOT)
    assert step.command[:2] == ("-m", "dynatui")
    arguments = [argument.replace(FOLDER, str(tmp_path)) for argument in step.command[2:]]
    assert cli.main(arguments) == 130
    assert len(asked) == 1
    assert asked[0].config.sampling == SAMPLED.get(step.name, Sampling())
    if isinstance(asked[0], job.OnRounds):
        load = asked[0].load.keywords  # type: ignore[attr-defined]
        assert load["device"] == "cuda"
        assert load["compiled"] is (step.name == "compile")
        assert asked[0].repeats == 3
    else:
        assert (asked[0].device, asked[0].with_baselines, len(asked[0].prompts)) == ("cuda", False, 1)
        assert "auto" in asked[0].methods


def test_an_option_that_does_not_exist_would_be_noticed() -> None:
    assert cli.main(["bench", "speed", "--warp", "9"]) == 2


def of_the_whole_tree() -> Sequence[str]:
    """Arguments of Python that select all tests that need a GPU, from every test file that contains the mark's name."""
    files = (path for path in (ROOT / "tests").rglob("test_*.py") if re.search(r"mark\.gpu\b", path.read_text("utf-8")))
    return ("-m", "pytest", "-o", "addopts=", "-W", "ignore:Unknown", "-m", "gpu", *map(str, files))


def test_every_test_that_needs_a_gpu_is_selected_by_exactly_one_step(ran: Ran) -> None:
    *by_step, all_of_them = ran.collected
    assert all(by_step)
    assert Counter(chain.from_iterable(by_step)) == Counter(all_of_them)
    assert len(all_of_them) > 150


@pytest.mark.parametrize("step", OF_PROGRAMS, ids=lambda step: step.name)
def test_a_program_understands_its_options(step: Step) -> None:
    path, *options = step.command
    program = {"benchmarks/kernels.py": kernels, "benchmarks/captures.py": captures}[path]
    assert (ROOT / path).samefile(str(program.__file__))
    wanted = program.options().parse_args(options)
    assert (wanted.shapes, wanted.dtype, wanted.device) == (("pythia-2.8b", "pythia-70m"), "float16", "cuda")
    if program is kernels:
        assert (wanted.tree, wanted.rounds) == ((8, 64), 20)
        assert wanted.sampling == [Sampling(), Sampling(1.0), TRUNCATED]


def test_every_step_is_of_a_kind_that_is_looked_at_here() -> None:
    compile(BY_NAME["machine"].command[1], "machine", "exec")
    kinds = [step.name for step in STEPS if step.name == "machine" or {"dynatui", "pytest"} & set(step.command)]
    assert sorted([*kinds, *(step.name for step in OF_PROGRAMS)]) == sorted(NAMES)


# Where the screen's packages are missing


def bare(absent: Path, *others: str) -> dict[str, str]:
    """Environment variables under which the packages in `ABSENT`, and `others`, cannot be imported."""
    absent.mkdir()
    for name in (*ABSENT, *others):
        (absent / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name='{name}')\n", encoding="utf-8")
    paths = os.pathsep.join((str(absent), str(ROOT)))
    return os.environ | {"PYTHONPATH": paths, "DYNATUI_CONFIG": os.devnull, "OMP_NUM_THREADS": "1"}


def without_a_gpu(step: Step, folder: Path) -> list[str]:
    """A step's command as in a dry run, but on the CPU and in float32."""
    changed = {"cuda": "cpu", "float16": "float32"}
    command = dry(step).command[len(ON_FAKE_DEVICE) :]
    found = [changed.get(argument, argument).replace(FOLDER, str(folder)) for argument in command]
    return found if "cpu" in found else [*found, "--device", "cpu"]


MEASURE_AND_COLLECT = """
import contextlib, io, json, runpy, sys, pytest

class Found:
    def pytest_collection_finish(self, session):
        selected.append([item.nodeid for item in session.items])

def measured(command):
    module = command[0] == "-m"
    sys.argv = command[module:]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            (runpy.run_module if module else runpy.run_path)(sys.argv[0], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return code, printed.getvalue()

programs, tests = map(json.loads, sys.argv[1:])
ends, selected = list(map(measured, programs)), []
for command in tests:
    assert pytest.main([*command[2:], "--collect-only", "-qq"], [Found()]) == 0
print(json.dumps([ends, selected]))
"""
"""Runs several programs, and collects the tests of several commands, in one process, which imports torch only once."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Commands of the steps, run where the packages in `ABSENT` are missing."""
    folder = tmp_path_factory.mktemp("ran")
    (alone,) = {tuple(step.environment.items()) for step in OF_TESTS}
    programs = [without_a_gpu(BY_NAME[name], folder) for name in ENDS]
    dry_commands = [dry(step).command[len(ON_FAKE_DEVICE) :] for step in OF_TESTS]
    commands = [*dry_commands, *(step.command for step in OF_TESTS), of_the_whole_tree()]
    asked = [sys.executable, "-c", MEASURE_AND_COLLECT, json.dumps(programs), json.dumps(commands)]
    environment = bare(folder / "absent") | dict(alone)
    done = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    measured, collected = json.loads(done.stdout.splitlines()[-1])
    dry_ones, others = collected[: len(OF_TESTS)], collected[len(OF_TESTS) :]
    return Ran(measured, (folder / "result.jsonl").read_text(encoding="utf-8"), others, dry_ones)


def test_measurements_run_without_the_packages_of_the_screen(ran: Ran) -> None:
    for (code, last), (found, printed) in zip(ENDS.values(), ran.measured, strict=True):
        assert found == code, printed
        assert "native CPU kernels" in printed
        assert last in printed
    setup = json.loads(ran.result)["setup"]
    assert (setup["path"], setup["temperature"], setup["top_k"], setup["top_p"]) == ("host", 1.0, 50, 0.95)


def test_the_runner_itself_needs_none_of_them_nor_those_that_have_to_be_brought(tmp_path: Path) -> None:
    asked = shlex.split(f"benchmarks/gpu.py --output {tmp_path / 'out'} --list")
    environment = bare(tmp_path / "absent", "msgspec", "jaxtyping", "typer")
    done = subprocess.run(
        [sys.executable, *asked], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == NAMES


def test_packages_that_are_absent_in_these_tests_are_absent(tmp_path: Path) -> None:
    environment = bare(tmp_path / "absent")
    for name in ABSENT:
        asked = [sys.executable, "-c", f"import {name}"]
        done = subprocess.run(asked, env=environment, capture_output=True, check=False)
        assert done.returncode != 0


def test_options_are_refused_as_everywhere() -> None:
    with pytest.raises(SystemExit):
        gpu.main([])
    with pytest.raises((SystemExit, argparse.ArgumentError, ConfigError)):
        kernels.main(["--tree", "eight"])


# Dry runs


def ended(step: Step, name: str) -> dict[str, Result]:
    """Results in which the step is done, under this name."""
    return {name: Result(Status("done", 0, 1.0, "2026-01-01T00:00:00Z", step.command, step.environment), {})}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_dry_run_and_a_run_on_a_gpu_ignore_each_other_s_results_whatever_their_names(step: Step) -> None:
    rehearsed = dry(step)
    assert rehearsed.name == f"dry-run.{step.name}"
    for name in (step.name, rehearsed.name):
        assert pending([step], ended(rehearsed, name)) == [step]
        assert pending([rehearsed], ended(step, name)) == [rehearsed]
    assert pending([rehearsed], ended(rehearsed, rehearsed.name)) == []


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_dry_run_runs_the_same_command_with_smaller_values(step: Step) -> None:
    first, command = dry(step).command[: len(ON_FAKE_DEVICE)], dry(step).command[len(ON_FAKE_DEVICE) :]
    assert first == ON_FAKE_DEVICE
    if "pytest" in command:
        place = command.index("-p")
        command = (*command[:place], *command[place + 2 :])
    assert len(command) == len(step.command)
    for (option, value), smaller in zip(pairwise(("", *step.command)), command, strict=True):
        assert (value == smaller) == (option not in SMALLER)
    assert all(
        Path(ROOT / path).exists() for word in command if word.endswith(".json") for path in word.split(":")[:-1]
    )


def test_a_dry_run_runs_at_most_two_cases_of_each_test_of_a_step(ran: Ran) -> None:
    def functions(tests: Sequence[str]) -> Counter[str]:
        return Counter(test.partition("[")[0] for test in tests)

    for chosen, full in zip(ran.in_dry_runs, ran.collected, strict=False):
        assert set(chosen) <= set(full)
        assert functions(chosen) == {name: min(cases, 2) for name, cases in functions(full).items()}
    assert any(len(chosen) < len(full) for chosen, full in zip(ran.in_dry_runs, ran.collected, strict=False))


ASKS = "import sys, torch; print(torch.cuda.get_device_name(), torch.ones(2, device='cuda').sum().item(), sys.argv[1:])"


@pytest.mark.parametrize("form", ["-c", "-m", "file"])
def test_a_program_on_the_fake_device_finds_the_device_and_its_own_arguments(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "asking_program.py"
    path.write_text(ASKS, encoding="utf-8")
    program = {"-c": ["-c", ASKS], "-m": ["-m", "asking_program"], "file": [str(path)]}[form]
    run.main([*program, "--speed", "9"])
    assert capsys.readouterr().out == "a fake device 2.0 ['--speed', '9']\n"


def test_dry_runs_are_steps_of_their_own_in_the_list(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert gpu.main(["--output", str(tmp_path), "--list", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"dry-run.{name}" for name in NAMES]
    assert all("(dry run: no measurement)" in line for line in lines)


def test_a_dry_run_of_a_measurement_says_on_which_device_it_was(tmp_path: Path) -> None:
    few_rounds = replace(BY_NAME["profile"], command=(*BY_NAME["profile"].command, "--tree", "2x4", "--rounds", "2"))
    assert gpu.main(["--output", str(tmp_path), "--dry-run"], [BY_NAME["machine"], few_rounds]) == 0
    results = latest_results([tmp_path])
    assert sorted(results) == ["dry-run.machine", "dry-run.profile"]
    assert results["dry-run.machine"].files[OUTPUT].count(b"a fake device") == 2
    profiles = [json.loads(line) for line in results["dry-run.profile"].files["result.json"].splitlines()]
    settings = [Sampling(), Sampling(1.0), TRUNCATED]
    assert [each["about"]["sampling"] for each in profiles] == list(map(str, settings))
    for each in profiles:
        assert (each["about"]["accelerator"], each["about"]["path"]) == ("a fake device", "cuda graphs")
        assert each["nodes"] > 100
        assert each["busy_us"] == 0

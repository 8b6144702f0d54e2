"""Tests of the GPU steps: they include every test that needs a GPU, and their programs accept their options."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from benchmarks import captures, gpu, kernels
from benchmarks.gpu import STEPS
from benchmarks.steps import FOLDER, ROOT, Step
from decoder.bench import job
from decoder.errors import ConfigError
from decoder.sampling.settings import Sampling
from dynatui.cli import main as cli

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


# The steps


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

    made = [apart(step) for step in STEPS if "--shapes" in step.command]
    assert len(set(made)) == len(made) > 1


TRUNCATED = Sampling(1.0, top_k=50, top_p=0.95)
SAMPLED = {"truncated": TRUNCATED, "embedded-sampled": TRUNCATED}


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


def saved_shape(folder: Path) -> str:
    config = {"model_type": "gpt_neox", "vocab_size": 288, "max_position_embeddings": 512, "hidden_size": 16}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    path = folder / "shape.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def without_a_gpu(command: Sequence[str], shape: str, folder: Path) -> list[str]:
    """A step's command with tiny models, the CPU, float32 and smaller numbers."""
    changed = {gpu.PYTHIA: f"{shape}:{shape}", "cuda": "cpu", "float16": "float32", "256": "32", "3": "1"}
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
    shape = saved_shape(folder)
    (alone,) = {tuple(step.environment.items()) for step in OF_TESTS}
    programs = [without_a_gpu(BY_NAME[name].command, shape, folder) for name in ENDS]
    commands = [*(step.command for step in OF_TESTS), of_the_whole_tree()]
    asked = [sys.executable, "-c", MEASURE_AND_COLLECT, json.dumps(programs), json.dumps(commands)]
    environment = bare(folder / "absent") | dict(alone)
    done = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    measured, collected = json.loads(done.stdout.splitlines()[-1])
    return Ran(measured, (folder / "result.jsonl").read_text(encoding="utf-8"), collected)


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

"""Tests of the plan: every stage can begin, needs no package that it does not name, and all GPU tests are in it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from threading import Thread

import pytest

from benchmarks import first
from benchmarks.stages import gpu_tests
from benchmarks.stages.journal import JOURNAL, Journal
from benchmarks.stages.plan import DRY, ENGINE, HERE, STAGES
from benchmarks.stages.worker import ROOT
from tests.fake_cuda import run

SCREEN_ONLY = ("textual", "click", "rich", "loky", "pyte")
ELSEWHERE = ("pytest_asyncio", "syrupy", "datasets", "optuna", "pexpect", "pydantic")
"""Packages that a GPU machine lacks and no stage names."""
TESTS = [stage for stage in STAGES if stage.work.startswith(f"{HERE}.gpu_tests:")]


def test_stages_have_names_and_work_of_their_own_and_the_most_valuable_evidence_fits_into_one_run() -> None:
    assert len({stage.name for stage in STAGES}) == len({stage.work for stage in STAGES}) == len(STAGES)
    assert all(callable(resolve_name(stage.work)) for stage in STAGES)
    assert all(0 < stage.least_s <= stage.limit_s for stage in STAGES)
    first = [stage.name for stage in STAGES[:4]]
    assert first == ["machine", "embedded", "race", "app"]
    assert sum(stage.limit_s for stage in STAGES[:4]) <= 60 * 8


def bare(absent: Path, names: Sequence[str]) -> dict[str, str]:
    """Environment variables under which packages of these names cannot be imported."""
    absent.mkdir()
    for name in names:
        (absent / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name='{name}')\n", encoding="utf-8")
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(absent), str(ROOT))), "OMP_NUM_THREADS": "1"}


def test_the_program_itself_begins_where_most_packages_are_missing(tmp_path: Path) -> None:
    environment = bare(tmp_path / "absent", [*SCREEN_ONLY, *ELSEWHERE, "torch", "transformers", "msgspec", "jaxtyping"])
    command = [sys.executable, "benchmarks/first.py", "--output", str(tmp_path / "out"), "--list"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [stage.name for stage in STAGES], done.stderr


COLLECTS = """
import json, sys
from pkgutil import resolve_name
works, commands = map(json.loads, sys.argv[1:])
of_tests = {"pytest", "hypothesis"}
sys.modules |= dict.fromkeys(of_tests)
for name in works:
    resolve_name(name)
for name in of_tests:
    del sys.modules[name]

import pytest
class Found:
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        self.full = [item.nodeid for item in items]
    def pytest_collection_finish(self, session):
        print("FOUND", json.dumps([self.full, [item.nodeid for item in session.items]]))
for arguments in commands:
    assert pytest.main([*arguments, "--collect-only", "-qq"], [Found()]) == 0
"""
"""Imports functions without packages for tests, then prints the tests that each command selects: all of them, and those
that a plugin of the command has left.
"""


def test_stages_of_the_engine_need_no_package_of_the_screen_and_those_of_tests_have_each_test_on_a_gpu_exactly_once(
    tmp_path: Path,
) -> None:
    """A dry run has one case of each test."""
    works = [stage.work for stage in STAGES if set(stage.packages) <= set(ENGINE)]
    assert len(works) > 12
    marked = re.compile(r"mark\.gpu\b")
    whole = [str(path) for path in (ROOT / "tests").rglob("test_*.py") if marked.search(path.read_text("utf-8"))]
    asked = [[*DRY.test_options, *resolve_name(stage.work).keywords["selected"]] for stage in TESTS]
    commands = [[*gpu_tests.OPTIONS, *selected] for selected in (*asked, whole)]
    environment = bare(tmp_path / "absent", [*SCREEN_ONLY, *ELSEWHERE]) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", COLLECTS, json.dumps(works), json.dumps(commands)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    *stages, (every, _) = (json.loads(line.removeprefix("FOUND ")) for line in lines)
    assert Counter(chain.from_iterable(full for full, _ in stages)) == Counter(every)
    assert len(every) > 150
    for full, chosen in stages:
        functions, few = ([test.partition("[")[0] for test in tests] for tests in (full, chosen))
        assert few == list(dict.fromkeys(functions))


def test_a_warning_fails_no_test_of_a_stage(tmp_path: Path) -> None:
    lines = "import pytest, warnings", f"@pytest.mark.{'gpu'}", "def test_it(): warnings.warn('harmless')"
    (tmp_path / "test_it.py").write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", *gpu_tests.OPTIONS, "-c", str(ROOT / "pyproject.toml"), "test_it.py"]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=tmp_path, env=alone, capture_output=True, check=False
    )
    assert (done.returncode, b"1 passed, 1 warning" in done.stdout) == (0, True), done.stdout


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


@pytest.mark.soak
def test_each_stage_is_killed_once_in_a_dry_run_and_all_are_done_in_the_end(tmp_path: Path) -> None:
    """The first stage, which is short, is killed at once, the others later."""
    journal = Journal(tmp_path / JOURNAL, 0.0, dry=True)

    def kill_each_stage_once() -> None:
        killed = set[str]()
        while len(killed) < len(STAGES):
            running = journal.running()
            if running and running[0] not in killed:
                time.sleep(1.0 if killed else 0.0)
                killed.add(running[0])
                for thread in Path("/proc/self/task").iterdir():
                    for worker in (thread / "children").read_text().split():
                        os.killpg(int(worker), signal.SIGKILL)
            time.sleep(0.01)

    Thread(target=kill_each_stage_once, daemon=True).start()
    assert first.main(["--output", str(tmp_path), "--dry"]) == 0
    ends = Counter((line["stage"], line["state"]) for line in journal.lines() if "state" in line)
    assert all(ends[stage.name, "died"] == ends[stage.name, "done"] == 1 for stage in STAGES)

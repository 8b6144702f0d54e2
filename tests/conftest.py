"""Pytest configuration: import path, worker processes, recorded durations, and tests that run alone.

The repository root is appended to sys.path, so that test modules can import helpers as `tests.…` while an installed
package takes precedence over the folder. Tests run in one process per core (pytest-xdist) with one thread each, because
threads of several processes wait for each other. Tests that measure wall time run while no other test runs.
durations.json records durations; slow tests are selected by them.
"""

import fcntl
import gc
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import IO

import pytest

sys.path.append(str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell makes background jobs and programs under nohup ignore these signals; programs under test would inherit that.
for ignorable, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(ignorable) is signal.SIG_IGN:
        signal.signal(ignorable, usual)


DURATIONS = Path(__file__).with_name("durations.json")
"""File of the mean durations in seconds of a function's cases, fixtures included, by test file and function."""
RECORDED_S = 0.05
"""Shorter durations are not recorded, so that the file stays short and rarely changes."""
SLOW_S = 0.5
"""The cases of a function are slow if their mean duration is at least this."""
WAITED_S = "waited_s"
"""Property of a test's report: seconds that the test waited for its turn because some tests run alone."""
COLLECTED_EVERY = 50_000
"""Number of new objects after which garbage is collected; Python's default is 700."""
TAKE_LONG = ("statistical", "soak")
"""Marks of long tests: such a test runs only if -m names its mark."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"run slow tests too and write {DURATIONS.name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.record_durations and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationRecorder())


class DurationRecorder:
    """Measures every case; at the end it replaces the recorded durations of the files that ran."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.when == "teardown":  # this report has the properties of all phases of the test
            waits = (value for name, value in report.user_properties if name == WAITED_S)
            self.seconds[report.nodeid] -= sum(wait for wait in waits if isinstance(wait, float))

    def pytest_sessionfinish(self) -> None:
        """Writes the durations; those of test files that did not run are kept unless the files are gone."""
        cases: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for node, seconds in self.seconds.items():
            cases[_file(node)][_function(node)].append(seconds)
        ran = {file: _recorded(functions) for file, functions in cases.items()}
        there = {path.name for path in DURATIONS.parent.rglob("test_*.py")}
        merged = {file: functions for file, functions in {**_durations(), **ran}.items() if functions and file in there}
        DURATIONS.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _recorded(functions: dict[str, list[float]]) -> dict[str, float]:
    means = {name: sum(seconds) / len(seconds) for name, seconds in functions.items()}
    return {name: round(mean, 2) for name, mean in means.items() if mean >= RECORDED_S}


@cache
def _durations() -> dict[str, dict[str, float]]:
    durations: dict[str, dict[str, float]] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return durations


def _file(node: str) -> str:
    """Name of the test file without its folder, so that durations survive a move; pytest requires unique names."""
    return Path(node.partition("::")[0]).name


def _function(node: str) -> str:
    return node.partition("::")[2].partition("[")[0]


def _whole_folders(config: pytest.Config) -> bool:
    return all(Path(argument.partition("::")[0]).is_dir() for argument in config.args)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process per core for whole folders; none for single files, which finish before a process has started."""
    import loky  # noqa: PLC0415 - not needed if one process suffices

    return loky.cpu_count() if _whole_folders(config) else 0


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skips files without slow tests if only slow tests run, because the import of all files takes half a minute."""
    if config.option.markexpr != "slow" or collection_path.is_dir():
        return None
    return max(_durations().get(collection_path.name, {}).values(), default=0) < SLOW_S or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks slow tests before -m is applied, and deselects slow and long tests that were not requested.

    Slow tests run if -m, -k or the name of a file selects tests.
    """
    durations = _durations()
    for item in items:
        if durations.get(_file(item.nodeid), {}).get(_function(item.nodeid), 0) >= SLOW_S:
            item.add_marker(pytest.mark.slow)
    option = config.option
    selected = option.markexpr or option.keyword or option.record_durations or not _whole_folders(config)
    marks = [mark for mark in TAKE_LONG if mark not in option.markexpr]
    if not selected:
        marks.append("slow")
    left_out = [item for item in items if any(map(item.get_closest_marker, marks))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        unwanted = set(left_out)
        items[:] = [item for item in items if item not in unwanted]


def pytest_collection_finish() -> None:
    """Exempts imported objects from garbage collection, because scanning them takes a fifth of the tests' time. All
    other objects are scanned less often than by default, which saves a tenth of the remaining time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_EVERY)


@pytest.fixture(scope="session")
def _turn(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[IO[bytes]]:
    base = tmp_path_factory.getbasetemp()
    with ((base.parent if hasattr(request.config, "workerinput") else base) / "turn.lock").open("wb") as lock:
        yield lock


@pytest.fixture(autouse=True)
def _timed_alone(_turn: IO[bytes], request: pytest.FixtureRequest) -> Iterator[None]:
    began = time.perf_counter()
    fcntl.flock(_turn, fcntl.LOCK_EX if request.node.get_closest_marker("wall_time") else fcntl.LOCK_SH)
    request.node.user_properties.append((WAITED_S, time.perf_counter() - began))
    yield
    fcntl.flock(_turn, fcntl.LOCK_UN)


@pytest.fixture
def alone(_turn: IO[bytes], _timed_alone: None, request: pytest.FixtureRequest) -> Callable[[], None]:
    """Function that waits until no other test runs, and then blocks new tests until this test ends.

    For tests that measure time only in their last part.
    """

    def wait() -> None:
        began = time.perf_counter()
        fcntl.flock(_turn, fcntl.LOCK_EX)
        request.node.user_properties.append((WAITED_S, time.perf_counter() - began))

    return wait


@pytest.fixture(scope="session")
def gguf_pair(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The embedded pair as GGUF files: a `GgufPair`."""
    from tests.gguf_pair import GgufPair  # noqa: PLC0415 - imports torch

    return GgufPair(tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="session")
def gguf_states(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Tiny random models whose layers keep a state, as GGUF files: a `GgufStates`."""
    from tests.gguf_pair import GgufStates  # noqa: PLC0415 - imports torch

    return GgufStates(tmp_path_factory.mktemp("gguf_states"))

"""Lets test modules share helpers as `tests.…`; appended, so that an installed package stays ahead of the folder.

Tests run in a process a core (pytest-xdist), each with one thread, because threads of several processes wait for each
other; those that measure wall time run while no other test does. durations.json says which
are slow.
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
from pathlib import Path
from typing import IO

import pytest

sys.path.append(str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell lets what it runs in the background, or under nohup, ignore these, and so would every program under test.
for ignorable, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(ignorable) is signal.SIG_IGN:
        signal.signal(ignorable, usual)


DURATIONS = Path(__file__).with_name("durations.json")
"""Seconds of a case, with its fixtures, by test file and function: the mean over the function's cases."""
RECORDED_S = 0.05
"""Shorter ones are not recorded, so that the file stays short and seldom changes."""
SLOW_S = 0.5
"""From this mean duration the cases of a function are slow."""
WAITED_S = "waited_s"
"""Property of a test's report: how long it waited for tests that run alone."""
TAKE_LONG = ("statistical", "soak")
"""Marks of tests that run only where -m names the mark."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"run slow tests too and write {DURATIONS.name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.record_durations and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationRecorder())


class DurationRecorder:
    """Measures every case; at the end it replaces the recorded durations of the files that ran."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """By node id."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.when == "teardown":  # whose report has what all parts of the test have noted
            waits = (value for name, value in report.user_properties if name == WAITED_S)
            self.seconds[report.nodeid] -= sum(wait for wait in waits if isinstance(wait, float))

    def pytest_sessionfinish(self) -> None:
        """Keeps what other files recorded, unless they are gone."""
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


def _durations() -> dict[str, dict[str, float]]:
    durations: dict[str, dict[str, float]] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return durations


def _file(node: str) -> str:
    """Its name alone, which pytest demands to be unique: a file keeps its durations when it moves."""
    return Path(node.partition("::")[0]).name


def _function(node: str) -> str:
    return node.partition("::")[2].partition("[")[0]


def _whole_folders(config: pytest.Config) -> bool:
    return all(Path(argument.partition("::")[0]).is_dir() for argument in config.args)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process a core for whole folders, none for the tests of a file: they are done before a process has started."""
    import loky  # noqa: PLC0415 - where one process suffices, nobody needs it

    return loky.cpu_count() if _whole_folders(config) else 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks slow tests before -m selects, and leaves out what takes long where nothing asks for it.

    Slow tests run where -m, -k or the name of a file selects tests.
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
    """What is imported stays: to search all of it for garbage, again and again, takes a fifth of the time of tests."""
    gc.collect()
    gc.freeze()


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
    """Waits until no other test runs, and lets none begin before this one ends: for tests that time their end alone."""

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
    """Tiny random models with states as GGUF files: `GgufStates`."""
    from tests.gguf_pair import GgufStates  # noqa: PLC0415 - imports torch

    return GgufStates(tmp_path_factory.mktemp("gguf_states"))

"""Lets test modules share helpers as `tests.…`; appended, so that an installed package stays ahead of the folder.

Tests run in a process a core (pytest-xdist), each with one thread, because threads of several processes wait for each
other; those that measure wall time run while no other test does.
"""

import fcntl
import gc
import os
import signal
import sys
from collections.abc import Iterator
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process a core for whole folders, none for the tests of a file: they are done before a process has started."""
    import loky  # noqa: PLC0415 - where one process suffices, nobody needs it

    named = [Path(argument.partition("::")[0]) for argument in config.args]
    return loky.cpu_count() if all(path.is_dir() for path in named) else 0


TAKE_LONG = ("statistical", "soak")
"""Marks of what is left out unless -m asks for it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what takes minutes or hours, unless -m asks for it."""
    marks = [mark for mark in TAKE_LONG if mark not in config.option.markexpr]
    left_out = [item for item in items if any(map(item.get_closest_marker, marks))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


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
    fcntl.flock(_turn, fcntl.LOCK_EX if request.node.get_closest_marker("wall_time") else fcntl.LOCK_SH)
    yield
    fcntl.flock(_turn, fcntl.LOCK_UN)

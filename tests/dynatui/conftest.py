"""Fixtures that remove the settings of the user who runs the tests, and that start programs in pseudo-terminals."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.dynatui.pty_terminal import Start, terminals, written
from tests.dynatui.scripted_runs import story
from tests.dynatui.warm_python import WarmPython

settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DYNATUI_") and name != "DYNATUI_DATA"]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)


@pytest.fixture(scope="session")
def _warm() -> Iterator[WarmPython | None]:
    """Server of processes with the program imported; None where a process cannot adopt another one's children."""
    if not sys.platform.startswith("linux"):
        yield None
        return
    warm = WarmPython()
    yield warm
    warm.close()


@pytest.fixture
def start(tmp_path: Path, _warm: WarmPython | None) -> Iterator[Start]:
    """Starts Python with arguments, and with the program imported, in a pseudo-terminal."""
    with terminals(tmp_path, _warm) as begin:
        yield begin


@pytest.fixture
def start_new(tmp_path: Path) -> Iterator[Start]:
    """Starts a new interpreter with arguments in a pseudo-terminal, for tests of start-up and of imports."""
    with terminals(tmp_path) as begin:
        yield begin


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.fixture
def recording(tmp_path: Path) -> str:
    """Path of a recording that takes about a second to play."""
    return written(tmp_path / "run.jsonl", story(10))

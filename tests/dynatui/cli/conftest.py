"""Fixtures of the tests of the command line: a fake engine and screen, a recording, and what a command asks or says."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import decoder
from dynatui import main as cli
from dynatui.session import Session
from dynatui.terminal import streams
from tests.dynatui.cli.fake_screen import Asked, FakeScreen, Printed, Refused, Write
from tests.dynatui.fake_engine import FakeEngine, story
from tests.dynatui.pty_terminal import written


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setitem(vars(decoder), "load_pair", fake.load_pair)  # setattr would import the real ones first
    monkeypatch.setitem(vars(decoder), "decode", fake.decode)
    return fake


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> FakeScreen:
    """Fake screen; standard streams count as a terminal that can show it."""
    fake = FakeScreen()
    monkeypatch.setattr(streams, "can_show_screen", lambda: True)
    app = SimpleNamespace(watch=fake.watch, show_replay=fake.replay, follow=fake.follow, compare=fake.compare)
    monkeypatch.setitem(sys.modules, "dynatui.screen.run", app)
    return fake


@pytest.fixture
def asked(screen: FakeScreen) -> Asked:
    """The session that the screen is to show, from the arguments of a command."""

    def run(*arguments: str) -> Session:
        assert cli.main(arguments) == 0
        return screen.sessions[-1]

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """The one line, without the program's name, of a command that is refused."""

    def run(*arguments: str, code: int = 2) -> str:
        assert cli.main(arguments) == code
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("dynatui: ")
        assert printed.err.count("\n") == 1
        return printed.err.removeprefix("dynatui: ").rstrip("\n")

    return run


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def run(*arguments: str) -> str:
        assert cli.main(arguments) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the user's settings file, at its usual place in a folder of this test."""
    monkeypatch.delenv("DYNATUI_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def act(text: str) -> Path:
        path = tmp_path / "dynatui" / "config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return act


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return Path(written(tmp_path / "run.jsonl", story()))

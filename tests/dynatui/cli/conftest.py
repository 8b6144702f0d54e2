"""What the command line is tried on: an engine without models, a screen that draws nothing, a recording."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import decoder
from dynatui.record.recording import Recorder
from dynatui.terminal import streams
from tests.dynatui.cli.fake_screen import FakeScreen
from tests.dynatui.fake_engine import FakeEngine, story


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine that a run without a screen uses."""
    fake = FakeEngine()
    monkeypatch.setitem(vars(decoder), "load_pair", fake.load_pair)  # setattr would import the real ones first
    monkeypatch.setitem(vars(decoder), "decode", fake.decode)
    return fake


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> FakeScreen:
    """A terminal with a screen that draws nothing."""
    fake = FakeScreen()
    monkeypatch.setattr(streams, "can_show_screen", lambda: True)
    app = SimpleNamespace(watch=fake.watch, replay=fake.replay, follow=fake.follow, compare=fake.compare)
    monkeypatch.setitem(sys.modules, "dynatui.screen.run", app)
    return fake


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recording of one run."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        for event in story():
            recorder.write(event)
    return path

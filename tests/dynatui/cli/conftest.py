"""Fixtures of the tests of the command line: a fake engine without models, a fake screen, and a recording."""

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
    """Fake engine that takes the place of the real one in runs without a screen."""
    fake = FakeEngine()
    monkeypatch.setitem(vars(decoder), "load_pair", fake.load_pair)  # setattr would import the real ones first
    monkeypatch.setitem(vars(decoder), "decode", fake.decode)
    return fake


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> FakeScreen:
    """Fake screen; standard streams count as a terminal that can show it."""
    fake = FakeScreen()
    monkeypatch.setattr(streams, "can_show_screen", lambda: True)
    app = SimpleNamespace(watch=fake.watch, replay=fake.replay, follow=fake.follow, compare=fake.compare)
    monkeypatch.setitem(sys.modules, "dynatui.screen.run", app)
    return fake


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Path of a recording of one run."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        for event in story():
            recorder.write(event)
    return path

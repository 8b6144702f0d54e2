"""Fixtures of the tests of the laboratory's commands: those of the command line's tests, and options of a tiny pair."""

import pytest

from tests import tiny
from tests.dynatui.cli.conftest import engine, recorded, refused, screen
from tests.dynatui.conftest import _nobodys_settings, _warm, recording, start, start_new

__all__ = ["_nobodys_settings", "_warm", "engine", "recorded", "recording", "refused", "screen", "start", "start_new"]


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNATUI_DATA", raising=False)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    pair = tiny.kindred_pair("neox", tmp_path_factory.mktemp("pair"))
    return ["--target", str(pair.target), "--draft", str(pair.draft), "--device", "cpu", "--dtype", "float32"]

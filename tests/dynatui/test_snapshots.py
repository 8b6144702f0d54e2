"""Pictures of the whole screen, of an invented run that is never recorded anew: no clock, no timer, no models.

After a change that is meant: python -m pytest tests/dynatui/test_snapshots.py --snapshot-update, and look at them.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from decoder.errors import PairError
from decoder.events import Event
from dynatui.app import DynaApp
from dynatui.recording import read
from dynatui.session import View
from dynatui.state import Failure, Loading
from screenshots.make import standing_at
from tests.dynatui.render.scripted import ScriptedSource

TRACE = Path(__file__).parent.parent / "traces" / "lighthouse.jsonl"
Compare = Callable[..., bool]


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME", "SSH_CONNECTION", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return read(TRACE)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (40, 10)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_main_screen(events: list[Event], size: tuple[int, int], snap_compare: Compare) -> None:
    assert snap_compare(standing_at(events, 0.5), terminal_size=size)


@pytest.mark.parametrize("key", ["2", "3", "4"])
def test_the_tabs_of_a_small_terminal(events: list[Event], key: str, snap_compare: Compare) -> None:
    assert snap_compare(standing_at(events, 0.5), press=[key], terminal_size=(80, 24))


def test_no_colour(events: list[Event], snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(standing_at(events, 0.5), terminal_size=(120, 40))


def test_ascii(events: list[Event], snap_compare: Compare) -> None:
    assert snap_compare(standing_at(events, 0.5, View(symbols="ascii")), terminal_size=(120, 40))


def test_a_light_theme(events: list[Event], snap_compare: Compare) -> None:
    assert snap_compare(standing_at(events, 0.5, View(theme="textual-light")), terminal_size=(120, 40))


def test_help(events: list[Event], snap_compare: Compare) -> None:
    assert snap_compare(standing_at(events, 0.5), press=["?"], terminal_size=(80, 24))


def test_loading(snap_compare: Compare) -> None:
    source = ScriptedSource([Loading("importing torch"), Loading("loading target books-16m")])
    assert snap_compare(DynaApp(source, ticking=False, clock=lambda: 0.0), terminal_size=(120, 40))


def test_an_error(snap_compare: Compare) -> None:
    error = PairError("no model at /srv/modles/big: no config.json there; give a Hugging Face id or a folder")
    source = ScriptedSource([Loading("importing torch"), Failure(str(error), error.exit_code)])
    assert snap_compare(DynaApp(source, ticking=False, clock=lambda: 0.0), terminal_size=(80, 24))

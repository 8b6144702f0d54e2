"""Snapshots of the whole screen for a scripted run that never changes: no clock, no timer, no models.

After an intended change, run `pytest --snapshot-update tests/dynatui/screen/test_snapshots.py` and check the pictures.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from decoder.errors import PairError
from decoder.methods.delayed import Delayed
from decoder.run.config import RunConfig
from dynatui.record.reader import Runs
from dynatui.screen.app import DynaApp
from dynatui.session import View
from dynatui.state.run_state import Failure, Loading, Prompt, Record
from screenshots.make import standing_at
from tests.dynatui.screen.shown_app import still
from tests.dynatui.scripted_runs import ScriptedSource, delayed_run, drawn_round, plain_round

TRACE = Path(__file__).parents[2] / "traces" / "lighthouse.jsonl"
SMALL, FULL, LARGE = (80, 24), (120, 40), (200, 60)
DARK, LIGHT = View(), View(theme="textual-light")
NO_COLOR, ASCII = View(color=False), View(symbols="ascii")
ERROR = PairError("no model at /srv/modles/big: no config.json there; give a Hugging Face id or a folder")
INSPECTED, DRAWER = ("i", *["left"] * 6, "o"), ("d", *["down"] * 7, "0", ".", "4")


@cache
def lighthouse() -> Runs:
    return Runs(TRACE)


def midway(view: View) -> DynaApp:
    return standing_at(lighthouse(), 0.5, view)


def drawing(view: View) -> DynaApp:
    told = [drawn_round(number, generator=0.9 * (-1) ** number) for number in range(30)]
    source = ScriptedSource([Prompt(1, 1), delayed_run(), *told, plain_round("ar", 0)])
    own = Delayed("traversal", "delayed", 2, 1, 2)
    source.steering.config = RunConfig(("delayed", "ar"), temperature=0.6, delayed=own)
    return still(source, view)


def with_records(*records: Record) -> Callable[[View], DynaApp]:
    return lambda view: still(ScriptedSource([Loading("importing torch"), *records]), view)


class Shot(NamedTuple):
    app: Callable[[View], DynaApp]
    size: tuple[int, int]
    keys: Sequence[str] = ()
    view: View = DARK


SHOTS = {
    "the main screen small and dark": Shot(midway, SMALL),
    "the main screen without colour": Shot(midway, FULL, view=NO_COLOR),
    "the main screen large and light": Shot(midway, LARGE, view=LIGHT),
    "the main screen large in ascii": Shot(midway, LARGE, view=ASCII),
    "a terminal of ten lines": Shot(midway, (40, 10)),
    "a terminal of eight lines": Shot(midway, (36, 8)),
    **{f"tab {key} of a small terminal": Shot(midway, SMALL, key) for key in "2345678"},
    "an inspected token small": Shot(midway, SMALL, INSPECTED),
    "an inspected token large": Shot(midway, LARGE, INSPECTED),
    "the drawer of all knobs small": Shot(midway, SMALL, DRAWER),
    "the drawer of all knobs large": Shot(midway, LARGE, DRAWER),
    "a look back at the mask of a round": Shot(midway, FULL, ("left", "left", "t", "5")),
    "a panel alone": Shot(midway, FULL, "4e"),
    "help": Shot(midway, SMALL, "?"),
    "loading": Shot(with_records(Loading("loading target books-16m")), FULL),
    "an error": Shot(with_records(Failure(str(ERROR), ERROR.exit_code)), SMALL),
    "a run whose trees are drawn small and light": Shot(drawing, SMALL, "9", LIGHT),
    "a run whose trees are drawn small in ascii": Shot(drawing, SMALL, "9", ASCII),
    "a run whose trees are drawn": Shot(drawing, FULL, "9"),
    "a run whose trees are drawn without colour": Shot(drawing, FULL, "9", NO_COLOR),
    "a run whose trees are drawn large": Shot(drawing, LARGE, "9"),
    "a drawn tree alone": Shot(drawing, SMALL, "2"),
    "a token that was drawn small": Shot(drawing, SMALL, ("i", "left")),
    "a token that was drawn large": Shot(drawing, LARGE, ("i", "left")),
    "the drawer with verifier and drafting": Shot(drawing, SMALL, ("d", "home", *["down"] * 3)),
}


@pytest.mark.parametrize("name", SHOTS)
def test_a_picture(name: str, snap_compare: Callable[..., bool]) -> None:
    shot = SHOTS[name]
    assert snap_compare(shot.app(shot.view), press=shot.keys, terminal_size=shot.size)

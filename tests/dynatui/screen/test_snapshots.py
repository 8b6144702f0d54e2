"""Snapshots of the whole screen for a scripted run that never changes: no clock, no timer, no models.

After an intended change, run `pytest --snapshot-update tests/dynatui/screen/test_snapshots.py` and check the pictures.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from decoder.errors import PairError
from decoder.methods.delayed import Delayed
from decoder.run.config import RunConfig
from dynatui.record.reader import Runs
from dynatui.screen.app import DynaApp
from dynatui.session import View
from dynatui.state.run_state import Failure, Loading, Prompt
from screenshots.make import standing_at
from tests.dynatui.scripted_runs import ScriptedSource, delayed_run, drawn_round, plain_round

TRACE = Path(__file__).parents[2] / "traces" / "lighthouse.jsonl"
Compare = Callable[..., bool]


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME", "SSH_CONNECTION", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs(TRACE)


SMALL, FULL, LARGE = [(80, 24), (120, 40), (200, 60)]
LOOKS = {
    "dark": View(),
    "light": View(theme="textual-light"),
    "no-color": View(color=False),
    "ascii": View(symbols="ascii"),
}


def named(value: tuple[int, int] | str) -> str:
    return value if isinstance(value, str) else f"{value[0]}x{value[1]}"


@pytest.mark.parametrize(
    ("size", "look"), [(SMALL, "dark"), (FULL, "no-color"), (LARGE, "light"), (LARGE, "ascii")], ids=named
)
def test_the_main_screen(runs: Runs, size: tuple[int, int], look: str, snap_compare: Compare) -> None:
    assert snap_compare(standing_at(runs, 0.5, LOOKS[look]), terminal_size=size)


@pytest.mark.parametrize("size", [(40, 10), (36, 8)], ids=named)
def test_a_terminal_of_a_few_lines(runs: Runs, size: tuple[int, int], snap_compare: Compare) -> None:
    assert snap_compare(standing_at(runs, 0.5), terminal_size=size)


@pytest.mark.parametrize("key", ["2", "3", "4", "5", "6", "7", "8"])
def test_the_tabs_of_a_small_terminal(runs: Runs, key: str, snap_compare: Compare) -> None:
    assert snap_compare(standing_at(runs, 0.5), press=[key], terminal_size=(80, 24))


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=named)
def test_an_inspected_token(runs: Runs, size: tuple[int, int], snap_compare: Compare) -> None:
    assert snap_compare(standing_at(runs, 0.5), press=["i", *["left"] * 6, "o"], terminal_size=size)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=named)
def test_the_drawer_of_all_knobs(runs: Runs, size: tuple[int, int], snap_compare: Compare) -> None:
    keys = ["d", *["down"] * 7, "0", ".", "4"]
    assert snap_compare(standing_at(runs, 0.5), press=keys, terminal_size=size)


def test_a_look_back_at_the_mask_of_a_round(runs: Runs, snap_compare: Compare) -> None:
    assert snap_compare(standing_at(runs, 0.5), press=["left", "left", "t", "5"], terminal_size=(120, 40))


def test_a_panel_alone(runs: Runs, snap_compare: Compare) -> None:
    assert snap_compare(standing_at(runs, 0.5), press=["4", "e"], terminal_size=(120, 40))


def test_help(runs: Runs, snap_compare: Compare) -> None:
    assert snap_compare(standing_at(runs, 0.5), press=["?"], terminal_size=(80, 24))


def test_loading(snap_compare: Compare) -> None:
    source = ScriptedSource([Loading("importing torch"), Loading("loading target books-16m")])
    assert snap_compare(DynaApp(source, ticking=False, clock=lambda: 0.0), terminal_size=(120, 40))


def test_an_error(snap_compare: Compare) -> None:
    error = PairError("no model at /srv/modles/big: no config.json there; give a Hugging Face id or a folder")
    source = ScriptedSource([Loading("importing torch"), Failure(str(error), error.exit_code)])
    assert snap_compare(DynaApp(source, ticking=False, clock=lambda: 0.0), terminal_size=(80, 24))


def drawing(look: str = "dark") -> DynaApp:
    told = [drawn_round(number, generator=0.9 * (-1) ** number) for number in range(30)]
    source = ScriptedSource([Prompt(1, 1), delayed_run(), *told, plain_round("ar", 0)])
    own = Delayed("traversal", "delayed", 2, 1, 2)
    source.steering.config = RunConfig(("delayed", "ar"), temperature=0.6, delayed=own)
    return DynaApp(source, LOOKS[look], ticking=False, clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("size", "look"),
    [(SMALL, "light"), (SMALL, "ascii"), (FULL, "dark"), (FULL, "no-color"), (LARGE, "dark")],
    ids=named,
)
def test_a_run_whose_trees_are_drawn(size: tuple[int, int], look: str, snap_compare: Compare) -> None:
    assert snap_compare(drawing(look), press=["9"], terminal_size=size)


def test_a_drawn_tree_alone(snap_compare: Compare) -> None:
    assert snap_compare(drawing(), press=["2"], terminal_size=(80, 24))


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=named)
def test_a_token_that_was_drawn(size: tuple[int, int], snap_compare: Compare) -> None:
    assert snap_compare(drawing(), press=["i", "left"], terminal_size=size)


def test_the_drawer_with_verifier_and_drafting(snap_compare: Compare) -> None:
    assert snap_compare(drawing(), press=["d", "home", *["down"] * 3], terminal_size=(80, 24))

"""Tests of which panels are on the screen."""

from dataclasses import replace

import pytest

from dynatui.keymap import PANELS
from dynatui.render.layout import Layout, arranged, shared_place
from dynatui.render.scene import Scene
from dynatui.state.timeline import TimelinePosition

AROUND = {"status", "cards", "footer"}


def test_a_full_screen_shows_text_tree_curves_and_one_of_the_others() -> None:
    shown = arranged("full", Scene(), "race")
    assert shown == AROUND | {
        "main", "left", "text", "race", "tree", "curves", "acceptance", "depth", "timeline", "knobs",
    }  # fmt: skip
    assert arranged("full", Scene(panel="work"), "work") == shown - {"race"} | {"work"}


def test_a_large_screen_adds_a_column() -> None:
    assert arranged("roomy", Scene(), "race") - arranged("full", Scene(), "race") == {"column", "side", "guide"}


@pytest.mark.parametrize("room", ["small", "tabbed", "full", "roomy"])
def test_in_every_layout_the_first_page_has_headline_figures_text_tree_and_race(room: Layout) -> None:
    assert {"status", "cards", "text", "tree", "race"} <= arranged(room, Scene(), "race")


@pytest.mark.parametrize("panel", PANELS[1:])
def test_a_small_screen_shows_the_chosen_panel_alone(panel: str) -> None:
    shown = arranged("tabbed", Scene(panel=panel), "race")  # type: ignore[arg-type]  # name of a panel
    others = {name for name in (*PANELS, "acceptance") if name in shown} - {"curves"}
    assert others == ({"acceptance"} if panel == "curves" else {panel})
    assert {"tabs", "knobs", "trends"} <= shown


def test_who_looks_back_sees_the_time_line_even_on_a_small_screen() -> None:
    shown = arranged("tabbed", Scene(place=TimelinePosition(live=False)), "race")
    assert "timeline" in shown
    assert "trends" not in shown


def test_an_inspected_token_explains_itself_in_the_shared_place() -> None:
    shown = arranged("full", Scene(mode="inspect"), "work")
    assert "inspect" in shown
    assert "work" not in shown


@pytest.mark.parametrize("room", ["roomy", "full", "tabbed", "small"])
def test_the_drawer_takes_the_place_of_what_it_needs(room: str) -> None:
    shown = arranged(room, Scene(mode="knobs"), "race")  # type: ignore[arg-type]  # name of a layout
    assert "drawer" in shown
    assert "knobs" not in shown
    assert not {"race", "inspect"} & shown


@pytest.mark.parametrize("room", ["roomy", "full"])
def test_the_drawer_stands_beside_the_curves(room: str) -> None:
    assert {"drawer", "acceptance", "depth"} <= arranged(room, Scene(mode="knobs"), "race")  # type: ignore[arg-type]


def test_in_a_tabbed_terminal_it_stands_over_the_row_of_trends() -> None:
    assert {"drawer", "trends"} <= arranged("tabbed", Scene(mode="knobs"), "race")


@pytest.mark.parametrize("panel", PANELS)
def test_a_maximised_panel_is_alone(panel: str) -> None:
    shown = arranged("full", Scene(panel=panel, maximised=True), "race")  # type: ignore[arg-type]  # name of a panel
    assert shown - {"main", "left", "curves"} == {
        "status", "footer", *(("acceptance", "depth") if panel == "curves" else (panel,))
    }  # fmt: skip


def test_a_terminal_of_a_few_cells_shows_status_and_text() -> None:
    assert arranged("line", replace(Scene(), panel="tree"), "race") == {"essentials", "main", "left", "text"}


def test_a_panel_without_a_place_of_its_own_takes_the_shared_one() -> None:
    assert shared_place("log", "race") == "log"
    assert shared_place("tree", "log") == "log"

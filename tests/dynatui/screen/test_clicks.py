"""Clicks on lanes of the race and on panel titles."""

import pytest
from textual import events

from dynatui.keymap import PANELS, PanelName
from dynatui.screen.app import DynaApp
from dynatui.session import View
from tests.dynatui.screen.shown_app import FULL, SMALL, TABBED, screen_text, shown

ROOMY = (180, 56)


def place_of(app: DynaApp, words: str, within: str) -> tuple[int, int]:
    region = app.query_one(f"#{within}").region
    rows = screen_text(app).splitlines()
    for y in range(region.y, region.bottom):
        if (x := rows[y].find(words, region.x, region.right)) >= 0:
            return x + 1, y
    raise AssertionError(f"{words} is not in {within}")


@pytest.mark.parametrize("size", [ROOMY, FULL, TABBED, SMALL])
async def test_a_click_on_a_lane_of_the_race_watches_its_method(size: tuple[int, int]) -> None:
    async with shown(size=size) as (app, source, pilot):
        await pilot.press("4")
        for method in ("ar", "dynatree"):
            await pilot.click(offset=place_of(app, f"│ {method} ", "race"))
            assert (app.viewpoint.state.watched, source.steering.watched) == (method, method)


async def test_a_click_in_the_race_below_its_lanes_watches_nothing_else() -> None:
    async with shown() as (app, source, pilot):
        race = app.query_one("#race").region
        await pilot.click(offset=(race.x + 5, race.y + 4))
        assert (app.scene.panel, source.steering.watched) == ("race", "")


async def test_a_click_on_a_name_in_the_title_of_the_race_in_ascii_chooses_that_panel() -> None:
    async with shown(size=(200, 56), view=View(symbols="ascii")) as (app, _, pilot):
        await pilot.press("e", "4")
        await pilot.click(offset=place_of(app, "6 what if", "race"))
        assert app.scene.panel == "whatif"


TITLED: dict[str, PanelName] = {
    "text": "text",
    "tree": "tree",
    "race": "race",
    "acceptance": "curves",
    "depth": "curves",
    "side": "work",
}


async def test_a_click_on_a_title_chooses_its_panel() -> None:
    async with shown(size=ROOMY) as (app, _, pilot):
        for widget, panel in TITLED.items():
            await pilot.press("9" if panel != "race" else "4", *"3" if panel != "curves" else "")
            region = app.query_one(f"#{widget}").region
            await pilot.click(offset=(region.x + 4, region.y))
            assert (app.scene.panel, app.scene.mode) == (panel, "watch"), widget


async def test_every_panel_that_shares_the_place_can_be_chosen_by_a_click() -> None:
    async with shown(size=(200, 56)) as (app, _, pilot):
        for number, name in enumerate(PANELS[4:], 5):
            await pilot.press("e", "4")
            words = f"{number} {name.replace('whatif', 'what if')}"
            await pilot.click(offset=place_of(app, words, "race"))
            assert app.scene.panel == name
            await pilot.press("e")


async def test_a_drag_that_leaves_a_slider_watches_no_other_method() -> None:
    async with shown() as (app, source, pilot):
        slider, race = app.query_one("#knobs").region, app.query_one("#race").region
        await pilot.mouse_down(offset=(slider.x + 20, slider.y + 1))
        turned = [*source.turns]
        for y in range(race.y, race.bottom):
            at = race.x + 5, y
            app.on_mouse_move(
                events.MouseMove(
                    None, *at, 0, 0, 1, shift=False, meta=False, ctrl=False, screen_x=at[0], screen_y=at[1]
                )
            )
        assert (source.steering.watched, app.scene.panel) == ("", "text")
        assert source.turns == turned

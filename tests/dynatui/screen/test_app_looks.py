"""Inspecting and looking back at every size, clicks, and what is drawn for a round."""

import itertools
import re

import pytest
from msgspec import structs
from textual import events

from dynatui.keymap import PANELS, PanelName
from dynatui.screen.app import DynaApp
from dynatui.screen.canvas import Canvas
from dynatui.screen.pages.help import HelpScreen
from dynatui.session import View
from tests.dynatui.screen.shown_app import FULL, SMALL, TABBED, screen_text, shown, told
from tests.dynatui.scripted_runs import plain_round, run, story, text_of

ROOMY = (180, 56)
FIVE = ("dynatree", "auto", "ar", "linear", "fixed")


async def test_why_it_paused_by_itself_is_said() -> None:
    async with shown() as (app, source, pilot):
        source.paused, source.steering.broke = True, "nothing accepted, round 6"
        assert "nothing accepted" in await told(app, source, pilot)


async def test_other_symbols_are_in_every_cell_at_once() -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("v", "v")
        assert app.scene.symbols == "ascii"
        for canvas in app.query(Canvas):
            strips = [canvas.render_line(y) for y in range(canvas.size.height)]
            assert "".join(strip.text for strip in strips).isascii(), canvas.id


@pytest.mark.parametrize("key", ["?", "S", "A", "slash"])
async def test_pages_have_the_symbols_of_the_panels(key: str) -> None:
    async with shown() as (app, _, pilot):
        await pilot.press(key)
        await pilot.pause()
        assert not screen_text(app, -1).isascii()
        await pilot.press("escape", "v", "v", key)
        await pilot.pause()
        assert app.screen is not app.screen_stack[0]
        assert screen_text(app, -1).isascii()


async def test_inspecting_shows_the_same_figures_as_scrubbing_to_that_round() -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("home", "right", "right")
        scrubbed = app._scene_builder.scene(app.scene, 0.0, visible=())
        await pilot.press("escape", "i", "home", *["right"] * 4)
        inspected = app._scene_builder.scene(app.scene, 0.0, visible=())
        assert (inspected.state, inspected.place) == (scrubbed.state, scrubbed.place)


@pytest.mark.parametrize(
    ("keys", "heights"), [((), (34, 35, 39, 40, 44, 50, 60)), (("i",), (34, 40, 50)), (("7",), (34, 40, 50))]
)
async def test_from_110_columns_and_34_rows_on_the_text_keeps_six_rows(
    keys: tuple[str, ...], heights: tuple[int, ...]
) -> None:
    rounds = [structs.replace(plain_round("ar", 0), method=name) for name in FIVE]
    async with shown([run(FIVE), *rounds], size=(110, 34)) as (app, _, pilot):
        await pilot.press(*keys)
        for size in (*itertools.product((110, 160), heights), (159, 34), (200, 34)):
            await pilot.resize_terminal(*size)
            assert app.size == size
            assert app.query_one("#text", Canvas).size.height - 2 >= 6, size


@pytest.mark.parametrize("size", [(80, 24), (110, 34), (120, 40), (160, 50), (200, 60), (300, 90)])
async def test_free_rows_of_an_expanded_tree_show_the_trees_before_it_newest_first(size: tuple[int, int]) -> None:
    async with shown(story()[:-3], size=size) as (app, _, pilot):
        await pilot.press("2", "e")
        for newest, least in ((5, 3), (4, 0)):
            drawn = "\n".join(text_of(row) for row in app.query_one("#tree", Canvas)._rows)
            numbers = [int(number) for number in re.findall(r"── round (\d+): ", drawn)]
            assert numbers == [5, 4, 3, 2, 1][5 - newest :][: len(numbers)]
            assert len(numbers) >= least
            await pilot.press("left")


@pytest.mark.parametrize("size", [(40, 10), (60, 18), (60, 20), (80, 24), (100, 30), (120, 40), (200, 60)])
async def test_at_every_size_the_first_page_has_headline_text_tree_and_race(size: tuple[int, int]) -> None:
    async with shown(story(30)[:-3], size=size) as (app, _, pilot):
        await pilot.pause()
        page = screen_text(app)
        assert "tokens in" in page or " in 30" in page.splitlines()[0]
        assert "atatime" in page.replace(" ", "").replace("│", "") or "a time" in page
        assert "● -t" in page
        assert re.search(r"dynatree +█+.*150/s", page)
        assert re.search(r"ar .*50/s", page)
        assert "tokens a round" in page


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_the_panel_of_knobs_has_no_empty_rows_and_grows_with_its_notes(size: tuple[int, int]) -> None:
    async with shown(story()[:3], size=size) as (app, source, pilot):
        knobs = app.query_one("#knobs", Canvas)
        assert knobs.size.height == 4
        await told(app, source, pilot, *story()[3:-3])
        assert knobs.size.height > 4
        assert all(text_of(row).strip("│ ") for row in knobs._rows[1:-1])


def place_of(app: DynaApp, words: str, within: str) -> tuple[int, int]:
    region = app.query_one(f"#{within}").region
    rows = screen_text(app).splitlines()
    for y in range(region.y, region.bottom):
        if (x := rows[y].find(words, region.x, region.right)) >= 0:
            return x + 1, y
    raise AssertionError(f"{words} is not in {within}")


async def test_a_click_on_a_slider_turns_it() -> None:
    async with shown() as (app, source, pilot):
        row = app.query_one("#knobs").region
        for x in range(row.x, row.x + 40, 8):
            await pilot.click(offset=(x, row.y + 1))
        assert {name for name, _ in source.turns} == {"tau_h"}


@pytest.mark.parametrize("size", [ROOMY, FULL, TABBED, SMALL])
async def test_a_click_on_a_lane_of_the_race_watches_its_method(size: tuple[int, int]) -> None:
    async with shown(size=size) as (app, source, pilot):
        await pilot.press("4")
        for method in ("ar", "dynatree"):
            await pilot.click(offset=place_of(app, f"│ {method} ", "race"))
            assert (app.viewpoint.state.watched, source.steering.watched) == (method, method)


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


@pytest.mark.parametrize(("size", "view"), [(ROOMY, View()), (FULL, View(symbols="ascii")), (TABBED, View())])
async def test_every_panel_can_be_chosen_by_a_click_on_its_tab(size: tuple[int, int], view: View) -> None:
    async with shown(size=size, view=view) as (app, _, pilot):
        for expanded in ("", "e"):
            await pilot.press(*expanded)
            for number, name in enumerate(PANELS, 1):
                words = f"{number} {name.capitalize().replace('Whatif', 'What if')}"
                await pilot.click(offset=place_of(app, words, "tabs"))
                assert app.scene.panel == name


@pytest.mark.parametrize("size", [ROOMY, FULL, TABBED, SMALL])
async def test_a_click_on_a_key_of_the_footer_does_what_the_key_does(size: tuple[int, int]) -> None:
    async with shown(size=size) as (app, source, pilot):
        await pilot.click(offset=place_of(app, "? help", "footer"))
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape", "e")
        await pilot.click(offset=place_of(app, "back", "footer"))
        await pilot.pause()
        assert not app.scene.maximised
        if "[ ]" in screen_text(app).splitlines()[-1]:
            x, y = place_of(app, "[ ]", "footer")
            for place in (x - 1, x + 1):
                await pilot.click(offset=(place, y))
            await pilot.pause()
            assert [name for name, _ in source.turns] == ["tau_h", "tau_h"]
            assert source.turns[0][1] < source.turns[1][1]


@pytest.mark.parametrize("size", [ROOMY, FULL, (110, 34), (100, 30), TABBED, (60, 18), (59, 24), SMALL])
async def test_at_every_size_the_keys_of_the_panels_stay_in_sight(size: tuple[int, int]) -> None:
    async with shown(size=size) as (app, _, pilot):
        for key in ("1", *"456789", "e", "i"):
            await pilot.press(key)
            tabs = app.query_one("#tabs", Canvas)
            named = text_of(tabs._rows[0]) if tabs.region.area else ""
            footer = screen_text(app).splitlines()[-1]
            assert all(number in named for number in "56789") or "1-9 panel" in footer


async def test_a_drag_that_leaves_a_slider_watches_no_other_method() -> None:
    async with shown() as (app, source, pilot):
        slider, race = app.query_one("#knobs").region, app.query_one("#race").region
        await pilot.mouse_down(offset=(slider.x + 20, slider.y + 1))
        turned = [*source.turns]
        for y in range(race.y, race.bottom):
            x = race.x + 5
            moved = events.MouseMove(None, x, y, 0, 0, 1, shift=False, meta=False, ctrl=False, screen_x=x, screen_y=y)
            app.screen._forward_event(moved)
        await pilot.pause()
        assert (source.steering.watched, app.scene.panel, source.turns) == ("", "text", turned)

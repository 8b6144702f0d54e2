"""The list of themes: the highlighted theme is previewed, and leaving the list restores the earlier one."""

from functools import partial

from textual.color import Color
from textual.widgets import OptionList

from dynatui.screen.app import DynaApp
from dynatui.screen.widgets.canvas import Canvas
from dynatui.session import View
from tests.dynatui.screen.shown_app import shown
from tests.dynatui.screen.transcripts import transcripts


def ground(app: DynaApp) -> Color:
    return app.screen_stack[0].query_one("#status", Canvas).background_colors[0]


async def test_the_list_begins_at_the_theme_in_use_and_has_all_of_them() -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("T")
        listed = app.screen.query_one(OptionList)
        assert [str(option.prompt) for option in listed.options] == sorted(app.available_themes)
        assert listed.highlighted == sorted(app.available_themes).index(app.theme)


async def test_the_theme_under_the_cursor_is_on_the_screen_at_once_both_ways() -> None:
    async with shown() as (app, _, pilot):
        names = sorted(app.available_themes)
        start = names.index(app.theme)
        await pilot.press("T", "down")
        assert app.theme == names[start + 1]
        await pilot.press("k", "k")
        assert app.theme == names[start - 1]


async def test_esc_brings_the_theme_before_back() -> None:
    async with shown() as (app, _, pilot):
        before, colour = app.theme, ground(app)
        await pilot.press("T", "down", "down", "down", "escape")
        assert (app.theme, ground(app)) == (before, colour)


async def test_in_a_small_terminal_the_list_scrolls_to_the_cursor() -> None:
    async with shown(size=(40, 12)) as (app, _, pilot):
        await pilot.press("T", "end")
        listed = app.screen.query_one(OptionList)
        assert listed.highlighted == len(app.available_themes) - 1
        assert listed.scroll_offset.y > 0


test_transcript = transcripts(
    {
        "enter keeps a theme and says how to start with it": (shown, "T j enter"),
        "without colours there is nothing to choose": (partial(shown, view=View(color=False)), "T"),
    }
)

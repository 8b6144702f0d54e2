"""Search for a key by a word, in the command palette and on the help page."""

import pytest
from msgspec import structs
from rich.console import Console
from textual.command import CommandList
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import Input

from decoder.events import Run
from dynatui.keymap import KEYMAP, Keymap
from dynatui.screen.app import DynaApp
from dynatui.screen.pages.help import HelpScreen, help_page
from dynatui.screen.pages.page import SearchScreen
from dynatui.session import View
from tests.dynatui.screen.shown_app import shown
from tests.dynatui.scripted_runs import HOSTILE, run


async def found(pilot: Pilot[None], app: DynaApp, words: str) -> list[str]:
    await pilot.press("ctrl+p")
    app.screen.query_one(Input).value = words
    await pilot.pause(0.1)
    await pilot.app.workers.wait_for_complete()
    listed = app.screen.query_one(CommandList)
    return [str(listed.get_option_at_index(place).prompt) for place in range(listed.option_count)]


FIRST = {
    "temperature": ("T: down   (", "T: up   )"),
    "theme": ("theme   T",),
    "dark": ("theme   T",),
    "export": ("export   x",),
    "screenshot": ("export   x",),
    "save": ("record   r", "export   x"),
    "pause": ("pause   P",),
    "breakpoint": ("break on   B",),
    "prompt": ("prompt: next   n", "prompt: previous   N"),
    "zoom": ("expand   e",),
    "greedy": ("T: down   (", "T: up   )"),
    "reset": ("preset   s", "defaults   0"),
    "exit": ("quit   q ctrl+c",),
    "whatif": ("panel: whatif   6",),
}


async def test_the_palette_finds_a_command_by_the_word_that_one_would_type() -> None:
    async with shown() as (app, _, pilot):
        for words, first in FIRST.items():
            lines = await found(pilot, app, words)
            assert set(first) <= {line.splitlines()[0] for line in lines[:3]}, words
            await pilot.press("escape")


async def test_the_palette_shows_every_key_as_the_settings_have_it() -> None:
    keys = KEYMAP.rebound({"pause": ["f5", "["], "tau_h_down": [], "theme": []})
    async with shown(view=View(keys=keys)) as (app, _, pilot):
        heads = {line.splitlines()[0].rstrip() for line in await found(pilot, app, "")}
        assert {"pause   f5 [", "theme", "mask   t", "scrub: back   ←", "back   esc"} <= heads
        assert len(heads) == len(list(keys.commands))


async def test_a_command_that_was_found_by_its_help_is_run() -> None:
    async with shown() as (app, _, pilot):
        before = app.theme
        await found(pilot, app, "dark")
        await pilot.press("enter")
        await pilot.press("down", "enter")
        assert app.theme != before


def printed(keys: Keymap, words: str, told: Run | None = None) -> str:
    console = Console(width=100)
    with console.capture() as caught:
        console.print(help_page(keys, words, told))
    return caught.get()


def test_of_the_help_only_lines_with_all_of_the_words_are_left_and_no_empty_heading() -> None:
    page = printed(KEYMAP, "Temperature  DOWN")
    assert "turn the sampling temperature of all methods down or up" in page
    assert '"Temperature  DOWN"   1 line ' in page
    assert "What you see" not in page
    assert "restart" not in page
    assert "no lines" in printed(KEYMAP, "xyzzy")


def test_what_was_typed_is_cleaned_on_the_help_page() -> None:
    assert not set("\x1b\x07\x9b\u202e\r") & set(printed(KEYMAP, HOSTILE))


@pytest.mark.parametrize(("keys", "cap"), [(KEYMAP, "/"), (KEYMAP.rebound({"search": ["f6"]}), "f6")])
async def test_words_are_found_on_the_help_page_as_in_the_text(keys: Keymap, cap: str) -> None:
    async with shown(view=View(keys=keys), size=(80, 24)) as (app, _, pilot):
        await pilot.press("?", "G")
        page = app.screen.query_one(VerticalScroll)
        full = page.max_scroll_y
        await pilot.press(cap)
        assert isinstance(app.screen, SearchScreen)
        await pilot.press(*"theme", "enter")
        assert isinstance(app.screen, HelpScreen)
        assert page.max_scroll_y < full
        assert page.scroll_offset.y == 0
        await pilot.press("escape")
        for _ in range(100):  # the page is laid out again after a delay
            if page.max_scroll_y == full:
                break
            await pilot.pause(0.02)
        assert isinstance(app.screen, HelpScreen)
        assert page.max_scroll_y == full
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


async def test_a_search_of_the_help_that_is_given_up_leaves_it_as_it_was() -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("?", "/", *"theme", "escape")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


def test_the_help_page_says_how_the_rounds_of_this_run_are_decoded() -> None:
    told = structs.replace(run(), path="host", path_reason="native CPU kernels")
    page = printed(KEYMAP, "native kernels", told)
    assert "host, native CPU kernels" in page
    assert "This run" in page
    assert "This run" not in printed(KEYMAP, "")

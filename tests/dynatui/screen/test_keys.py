"""Keys as in vim and less, the search, and keys changed in the settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from msgspec import structs
from textual.containers import VerticalScroll
from textual.pilot import Pilot

from decoder.events import Event, Knob
from dynatui.keymap import KEYMAP
from dynatui.screen.app import DynaApp
from dynatui.screen.pages.help import HelpScreen
from dynatui.screen.pages.page import BreakScreen, Page, TextPage
from dynatui.session import View
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Prompt
from tests.dynatui.screen.shown_app import TABBED, screen_text, shown
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import run, story, tree_round

TEXTS = [" the moon", " was full", " and", " the Moon", " slept", " end"]


def tale(texts: list[str], prompt: str = "Once upon") -> list[Event]:
    return [run(("dynatree",), prompt), *(tree_round(number, text) for number, text in enumerate(texts))]


@asynccontextmanager
async def replayed(*tales: list[Event]) -> AsyncIterator[tuple[DynaApp, TraceSource, Pilot[None]]]:
    source = TraceSource(tales)
    app = DynaApp(source, ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        yield app, source, pilot


def turn(number: int, old: float) -> Knob:
    return Knob(method="dynatree", round=number, name="d0", old=old, new=old - 1, source="user")


async def find(pilot: Pilot[None], words: str) -> None:
    await pilot.press("/", *words, "enter")


def cursor_text(app: DynaApp) -> str:
    assert app.scene.inspected is not None
    return app.scene.inspected.text


async def test_a_search_puts_the_cursor_on_the_words_and_says_how_many_there_are() -> None:
    async with shown([Prompt(1, 1), *tale(TEXTS)]) as (app, _, pilot):
        await find(pilot, "moon")
        assert app.scene.mode == "search"
        assert app.scene.inspected is not None
        assert app.scene.inspected.round == 0
        foot = screen_text(app).splitlines()[-1]
        assert 'SEARCH  esc back  "moon" 1 of 2' in foot
        assert "hit" in foot


async def test_n_goes_from_hit_to_hit_and_round_again() -> None:
    async with shown([Prompt(1, 1), *tale(TEXTS)]) as (app, source, pilot):
        await find(pilot, "moon")
        rounds = []
        for key in ("n", "n", "N", "N"):
            await pilot.press(key)
            assert app.scene.inspected is not None
            rounds.append(app.scene.inspected.round)
        assert rounds == [3, 0, 3, 0]
        assert source.steps == []
        await pilot.press("escape")
        assert (app.scene.mode, app.scene.hits) == ("watch", ())
        await pilot.press("n")
        assert source.steps == [], "one key too many leaves no run that would be lost"
        await pilot.press("n")
        assert source.steps == [1]


async def test_a_search_for_nothing_repeats_the_last_one() -> None:
    async with shown([Prompt(1, 1), *tale(TEXTS)]) as (app, _, pilot):
        await find(pilot, "full")
        await pilot.press("escape")
        await find(pilot, "")
        assert (app.scene.mode, app.scene.query) == ("search", "full")


async def test_words_that_are_not_there_leave_everything_as_it_was() -> None:
    async with shown([Prompt(1, 1), *tale(TEXTS)]) as (app, _, pilot):
        await find(pilot, "sun")
        assert (app.scene.mode, app.scene.cursor, app.viewpoint.live) == ("watch", None, True)
        assert '"sun" is not in the text of dynatree so far' in screen_text(app)


async def test_in_a_recording_the_search_looks_ahead_and_the_show_goes_on_from_the_hit() -> None:
    async with replayed(tale(TEXTS)) as (app, source, pilot):
        source.play(0.15)
        app.tick()
        assert app.scene.place.round < 4
        await find(pilot, "slept")
        assert source.paused
        assert app.scene.inspected is not None
        assert app.scene.inspected.round == 4
        await pilot.press("escape")
        assert app.scene.place.round == 5
        await pilot.press("P")
        assert app.scene.place.round == 5
        source.play(0.2)
        app.tick()
        assert app.scene.place.round == 6


async def test_in_a_recording_the_search_comes_to_its_other_runs_and_back() -> None:
    async with replayed(tale(TEXTS), tale([" no", " moon"], "Other"), tale([" star"], "Third")) as (app, _, pilot):
        await find(pilot, "star")
        assert (app.scene.state.prompt_text, app.scene.mode) == ("Third", "search")
        await find(pilot, "moon")
        found = []
        for _ in range(4):
            found.append((app.scene.state.prompt_text, app.scene.inspected.round if app.scene.inspected else None))
            await pilot.press("n")
        assert found == [("Once upon", 0), ("Once upon", 3), ("Other", 1), ("Once upon", 0)]
        await pilot.press("N")
        await find(pilot, "nowhere")
        assert '"nowhere" is not in the text of dynatree' in screen_text(app)


async def test_another_method_is_searched_for_the_same_words() -> None:
    async with shown() as (app, _, pilot):
        await find(pilot, "time")
        before = app.scene.hits
        await pilot.press("w")
        assert app.scene.state.watched == "ar"
        assert app.scene.mode == "search"
        assert app.scene.hits != before


async def test_in_the_log_they_move_its_lines() -> None:
    turns = [turn(number, 5.0 - number) for number in range(3)]
    turns[1] = structs.replace(turns[1], name="n_max")  # equal names would be merged into one line
    events = [run(), *(event for number in range(3) for event in (tree_round(number), turns[number]))]
    async with shown([Prompt(1, 1), *events], TABBED) as (app, _, pilot):
        await pilot.press("8")
        assert "D0 3 → 2" in screen_text(app)
        await pilot.press("k")
        assert "1 more below" in screen_text(app)
        assert "D0 3 → 2" not in screen_text(app)
        await pilot.press("g", "k")
        assert app.scene.log_end > 1
        await pilot.press("G")
        assert "more below" not in screen_text(app)


async def test_while_inspecting_they_move_the_cursor() -> None:
    async with shown([*story(40)[:-3]]) as (app, _, pilot):
        await pilot.press("i", "g")
        assert app.scene.cursor == 0
        await pilot.press("j")
        below = app.scene.cursor
        assert below > 5
        await pilot.press("k")
        assert app.scene.cursor < below
        await pilot.press("G")
        assert app.scene.cursor == len(app.scene.state.lane.tokens) - 1


async def test_in_the_drawer_they_choose_a_slider() -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("d", "j")
        chosen = [app.scene.slider]
        for key in ("G", "k", "g"):
            await pilot.press(key)
            chosen.append(app.scene.slider)
        assert chosen[0] == "tau_l"
        assert chosen[3] == "tau_h"
        assert len(set(chosen)) == 4


async def test_pages_scroll_with_the_keys_of_vim_and_less() -> None:
    async with shown(size=(80, 24)) as (app, _, pilot):
        await pilot.press("?")
        page = app.screen.query_one(VerticalScroll)
        heights = []
        for key in ("j", "j", "k", "G", "g"):
            await pilot.press(key)
            heights.append(page.scroll_offset.y)
        assert heights == [1, 2, 1, page.max_scroll_y, 0]


@pytest.mark.parametrize(("key", "page"), [("?", HelpScreen), ("B", BreakScreen), ("y", TextPage)])
async def test_a_page_is_closed_by_the_key_that_opened_it_wherever_that_is(key: str, page: type[Page]) -> None:
    names = {"?": "help", "B": "break_on", "y": "command"}
    for keys, cap in ((KEYMAP, key), (KEYMAP.rebound({names[key]: ["f6"]}), "f6")):
        async with shown(view=View(keys=keys)) as (app, _, pilot):
            app.command_line = lambda: "dynatui"
            await pilot.press(cap)
            assert isinstance(app.screen, page)
            await pilot.press(cap)
            assert not isinstance(app.screen, page)


async def test_a_key_of_the_settings_does_what_its_name_says_and_the_screen_shows_it() -> None:
    keys = KEYMAP.rebound({"pause": ["f5"], "d0_up": [","], "top_p_down": [], "quit": ["Q"]})
    async with shown(view=View(keys=keys)) as (app, source, pilot):
        await pilot.press("comma")
        assert [name for name, _ in source.turns] == ["d0"]
        await pilot.press("P")
        assert not source.paused
        await pilot.press("f5")
        assert source.paused
        assert "f5 resumes" in screen_text(app)
        assert "- ," in screen_text(app)
        await pilot.press("q")
        assert app.is_running
        await pilot.press("Q")
        assert not app.is_running


async def test_quick_keys_close_a_page_once() -> None:
    async with shown() as (app, _, pilot):
        for number, key in enumerate(("?", "B", "/", "E", "ctrl+p"), 1):
            await pilot.press(key)
            page = app.screen
            page.dismiss()
            page.dismiss()
            await pilot.pause()
            assert len(app.screen_stack) == 1
            await pilot.press("k")
            assert app.scene.place.round == 6 - number, key


async def test_a_page_that_is_asked_to_close_behind_another_can_be_closed_afterwards() -> None:
    async with shown() as (app, _, pilot):
        for key in ("?", "B", "/", "E"):
            await pilot.press(key)
            page = app.screen
            app.action_command_palette()
            await pilot.pause()
            palette = app.screen
            page.dismiss()
            await pilot.pause()
            assert app.screen is palette, "only the page itself closes"
            await pilot.press("escape")
            assert app.screen is page
            await pilot.press("escape")
            assert len(app.screen_stack) == 1


test_transcript = transcripts(
    {
        "a search that is given up changes nothing": (partial(shown, [Prompt(1, 1), *tale(TEXTS)]), "/ m", "q escape"),
        "j and k are arrow keys while watching": (shown, "k k j", "g", "G"),
    }
)

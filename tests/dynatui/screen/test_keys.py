"""Keys as in vim and less, searches, leaving a run, the list of prompts, themes, and keys changed in the settings."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console
from textual.color import Color
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from decoder.events import Event, Run
from dynatui.keymap import KEYMAP, Keymap
from dynatui.screen import commands
from dynatui.screen.app import DynaApp
from dynatui.screen.canvas import Canvas
from dynatui.screen.pages.help import HelpScreen, help_page
from dynatui.screen.pages.page import BreakScreen, Page, SearchScreen, TextPage
from dynatui.session import Session, View
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Failure, Loading, Prompt, Record
from tests.dynatui.screen.shown_app import (
    FULL,
    MIDWAY,
    SMALL,
    TABBED,
    Clock,
    replayed,
    screen_text,
    shown,
    still,
)
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import HOSTILE, ScriptedSource, run, story, tree_round
from tests.dynatui.turned_runs import turned

TEXTS = [" the moon", " was full", " and", " the Moon", " slept", " end"]
PROMPTS = ("Once upon", "A ship sailed", f"The moon{HOSTILE} rose", "Rain fell", "The ship sank")


def tale(texts: Sequence[str], prompt: str = "Once upon") -> list[Event]:
    return [run(("dynatree",), prompt), *(tree_round(number, text) for number, text in enumerate(texts))]


TOLD: list[Record] = [Prompt(1, 1), *tale(TEXTS)]
TALES = (tale(TEXTS), tale([" no", " moon"], "Other"), tale([" star"], "Third"))
OF_THREE_KNOBS: list[Record] = [  # two turns of one knob in a row would be one line
    *(Prompt(1, 1), run(), tree_round(0), turned("d0", 0, 5, 4), tree_round(1), turned("n_max", 1, 4, 3)),
    *(tree_round(2), turned("d0", 2, 3, 2)),
]


async def find(pilot: Pilot[None], words: str) -> None:
    await pilot.press("/", *words, "enter")


def inspected_round(app: DynaApp) -> int | None:
    return app.scene.inspected.round if app.scene.inspected else None


async def test_in_a_recording_the_search_looks_ahead_and_the_show_goes_on_from_the_hit() -> None:
    async with replayed([tale(TEXTS)], 0.15) as (app, source, pilot):
        assert app.scene.place.round < 4
        await find(pilot, "slept")
        assert source.paused
        assert inspected_round(app) == 4
        for key in ("escape", "P"):
            await pilot.press(key)
            assert app.scene.place.round == 5
        source.play(0.2)
        app.tick()
        assert app.scene.place.round == 6


async def test_pages_scroll_with_the_keys_of_vim_and_less() -> None:
    async with shown(size=(80, 24)) as (app, _, pilot):
        await pilot.press("?")
        page = app.screen.query_one(VerticalScroll)
        heights = []
        for key in ("j", "j", "k", "G", "g"):
            await pilot.press(key)
            heights.append(page.scroll_offset.y)
        assert heights == [1, 2, 1, page.max_scroll_y, 0]


async def test_a_page_is_closed_by_the_key_that_opened_it_wherever_that_is() -> None:
    pages: dict[str, type[Page]] = {"f6": HelpScreen, "f7": BreakScreen, "f8": TextPage}
    keys = KEYMAP.rebound({name: [cap] for name, cap in zip(("help", "break_on", "command"), pages, strict=True)})
    async with shown(view=View(keys=keys)) as (app, _, pilot):
        app.command_line = lambda: "dynatui --tau-h 0.8"
        for cap, page in pages.items():
            for is_open in (True, False):
                await pilot.press(cap)
                assert isinstance(app.screen, page) is is_open
        assert app.clipboard == "dynatui --tau-h 0.8"


async def test_a_key_of_the_settings_does_what_its_name_says_and_the_screen_shows_it() -> None:
    keys = KEYMAP.rebound({"pause": ["f5"], "d0_up": [","], "top_p_down": [], "quit": ["Q"]})
    async with shown(view=View(keys=keys)) as (app, source, pilot):
        await pilot.press("comma")
        assert [name for name, _ in source.turns] == ["d0"]
        for key, paused in (("P", False), ("f5", True)):
            await pilot.press(key)
            assert source.paused is paused
        assert "f5 resumes" in screen_text(app)
        assert "- ," in screen_text(app)
        for key, running in (("q", True), ("Q", False)):
            await pilot.press(key)
            assert app.is_running is running


async def test_a_page_closes_itself_alone_and_once_however_often_and_wherever_it_is_asked_to() -> None:
    async with shown() as (app, _, pilot):
        for number, key in enumerate(("?", "B", "/", "E"), 1):
            await pilot.press(key)
            page = app.screen
            app.action_command_palette()
            await pilot.pause()
            palette = app.screen
            page.dismiss()
            await pilot.pause()
            assert app.screen is palette
            for still in (palette, page):
                assert app.screen is still
                still.dismiss()
                still.dismiss()
                await pilot.pause()
            assert len(app.screen_stack) == 1
            await pilot.press("k")
            assert app.scene.place.round == 6 - number, key


@pytest.mark.parametrize(("key", "step", "size"), [("n", 1, FULL), ("N", -1, SMALL), ("R", 0, (39, 9))])
async def test_a_run_that_is_not_recorded_is_left_by_the_second_press(
    key: str, step: int, size: tuple[int, int]
) -> None:
    async with shown(size=size) as (app, source, pilot):
        await pilot.press(key)
        assert source.steps == []
        assert f"not recorded: {key} again leaves this run" in screen_text(app)
        await pilot.press(key)
        assert source.steps == [step]
        assert "not recorded" not in screen_text(app)


async def test_after_a_while_the_question_is_asked_again() -> None:
    source, clock = ScriptedSource(MIDWAY), Clock()
    app = still(source, clock=clock)
    async with app.run_test(size=FULL) as pilot:
        await pilot.press("n")
        clock.now = 60.0
        app.tick()
        await pilot.press("n")
        assert source.steps == []
        await pilot.press("n")
        assert source.steps == [1]


@pytest.mark.parametrize(
    "records",
    [
        [Loading("importing torch")],
        [Prompt(1, 2), run()],
        [Prompt(1, 2), *story()],
        [*MIDWAY, Failure("out of memory", 3)],
        None,
    ],
    ids=["loading", "no round yet", "complete", "failed", "recorded"],
)
async def test_where_nothing_is_lost_nothing_is_asked(records: list[Record] | None) -> None:
    async with shown(records or MIDWAY) as (_, source, pilot):
        source.steering.record(None if records else Path("run.jsonl"))
        await pilot.press("R")
        assert source.steps == [0]


async def test_the_command_palette_asks_as_well_and_names_keys_of_the_settings() -> None:
    async with shown(view=View(keys=KEYMAP.rebound({"next_prompt": ["f5"]}))) as (app, source, pilot):
        command = commands.find("prompt(1)")
        assert command is not None
        command(app)
        await pilot.pause()
        assert source.steps == []
        assert "not recorded: f5 again leaves this run" in screen_text(app)
        command(app)
        assert source.steps == [1]


@pytest.mark.parametrize(("recorded", "told"), [(None, True), (Path("run.jsonl"), False)])
async def test_the_page_of_a_prompt_says_what_running_it_ends(recorded: Path | None, *, told: bool) -> None:
    async with shown() as (app, source, pilot):
        source.steering.record(recorded)
        await pilot.press("E")
        words = str(app.screen.query_one(Static).render())
        assert ("ends this run, which is not recorded" in words) == told


@asynccontextmanager
async def listing(
    size: tuple[int, int] = FULL, recorded: Path | None = Path("run.jsonl")
) -> AsyncIterator[tuple[DynaApp, ScriptedSource, Pilot[None]]]:
    async with shown([Prompt(1, 5), *MIDWAY[1:]], size) as (app, source, pilot):
        source.steering.session = Session(PROMPTS)
        source.steering.record(recorded)
        await pilot.press("7")
        yield app, source, pilot


@pytest.mark.parametrize("size", [FULL, TABBED])
async def test_every_prompt_of_the_session_is_listed(size: tuple[int, int]) -> None:
    async with listing(size) as (app, _, _pilot):
        seen = screen_text(app)
        assert all(words in seen for words in ("A ship sailed", "The moon", "Rain fell", "The ship sank", "waiting"))
        assert not set("\x1b\x07\x9b\u202e\r") & set(seen)


async def test_prompts_of_a_recording_with_many_runs_are_read_a_few_at_a_time() -> None:
    read = list[int]()

    def prompt_of(number: int) -> str:
        read.append(number)
        return f"Number {number}"

    app = still(TraceSource([story()] * 1000, prompt_of=prompt_of))
    async with app.run_test(size=FULL) as pilot:
        assert read == []
        await pilot.press("7")
        for _ in range(20):
            before = len(read)
            app.draw(everything=True)
            assert len(read) <= before + 100
        assert read == [*range(1000)]
        assert app.scene.openings[-1] == "Number 999"


def ground(app: DynaApp) -> Color:
    return app.screen_stack[0].query_one("#status", Canvas).background_colors[0]


async def test_the_list_of_themes_begins_at_the_one_in_use_and_previews_them_until_esc() -> None:
    async with shown(size=(40, 12)) as (app, _, pilot):
        before, names = (app.theme, ground(app)), sorted(app.available_themes)
        start = names.index(app.theme)
        await pilot.press("T")
        listed = app.screen.query_one(OptionList)
        assert [str(option.prompt) for option in listed.options] == names
        assert listed.highlighted == start
        for keys, place in ((("down",), start + 1), (("up", "up"), start - 1), (("pageup",) * 9, 0)):
            await pilot.press(*keys)
            assert (app.theme, listed.highlighted) == (names[place], place)
        await pilot.press("escape")
        assert (app.theme, ground(app)) == before


test_transcript = transcripts(
    {
        "a search puts the cursor on the words and goes round from hit to hit": (
            partial(shown, TOLD),
            *("/ m o o n enter", "n", "n", "N", "N"),
            # One key too many leaves no run that would be lost.
            *("escape", "n", "n"),
        ),
        "a search for nothing repeats the last one": (partial(shown, TOLD), "/ f u l l enter escape", "/ enter"),
        "words that are not there leave everything as it was": (partial(shown, TOLD), "/ s u n enter"),
        "in a recording the search comes to its other runs and back": (
            partial(replayed, TALES, size=TABBED),
            *("/ s t a r enter", "/ m o o n enter", "n", "n", "n", "N", "/ n o w h e r e enter"),
        ),
        "another method is searched for the same words": (shown, "/ t i m e enter", "w"),
        "a search that is given up changes nothing": (partial(shown, TOLD), "/ m", "q escape"),
        "j and k are arrow keys while watching": (shown, "k k j", "g", "G"),
        "in the log they move its lines": (partial(shown, OF_THREE_KNOBS, TABBED), "8", "k", "g k", "G"),
        "while inspecting they move the cursor": (partial(shown, [*story(40)[:-3]]), "i g", "j", "k", "G"),
        "in the drawer they choose a slider": (shown, "d j", "G", "k", "g"),
        "every run has its own question": (shown, "n n", [Prompt(2, 2), *story()[:-3]], "n"),
        "another key is no answer": (shown, "n N R o n"),
        "what others have written is never asked about": (partial(shown, steerable=False), "n"),
        "enter goes to the chosen prompt": (listing, "down j j k enter", "G enter", "G g enter"),
        "while another panel is chosen these keys do as before": (listing, "4 k enter"),
        "of a recording all runs are listed and enter plays one": (
            partial(replayed, [[run(("dynatree",), prompt), tree_round(0)] for prompt in PROMPTS]),
            *("7", "G enter", []),
        ),
        "where another process decodes its prompts cannot be chosen": (partial(shown, steerable=False), "7 enter"),
        "a run that is not recorded is left by the second enter on the same prompt": (
            partial(listing, recorded=None),
            *("j enter", "j enter", "enter"),
        ),
        "a filter is typed kept in sight and taken away again": (listing, "/ s h i p enter", "G enter", "escape"),
        "enter keeps a theme and says how to start with it": (shown, "T down enter"),
        "without colours there is nothing to choose": (partial(shown, view=View(color=False)), "T"),
    }
)


async def listed(pilot: Pilot[None], app: DynaApp, words: str) -> list[str]:
    """Lines of the open palette that are found by the words."""
    app.screen.query_one(Input).value = words
    await pilot.pause()
    found = app.screen.query_one(OptionList)
    return [str(found.get_option_at_index(place).prompt) for place in range(found.option_count)]


FIRST = {
    **dict.fromkeys(("temperature", "greedy"), ("T: down   (", "T: up   )")),
    **dict.fromkeys(("theme", "dark"), ("theme   T",)),
    **dict.fromkeys(("export", "screenshot"), ("export   x",)),
    "save": ("record   r", "export   x"),
    "pause": ("pause   P",),
    "breakpoint": ("break on   B",),
    "prompt": ("prompt: next   n", "prompt: previous   N"),
    "zoom": ("expand   e",),
    "reset": ("preset   s", "defaults   0"),
    "exit": ("quit   q ctrl+c",),
    "whatif": ("panel: whatif   6",),
}


async def test_the_palette_finds_a_command_by_the_word_that_one_would_type() -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("ctrl+p")
        for words, first in FIRST.items():
            lines = await listed(pilot, app, words)
            assert set(first) <= {line.splitlines()[0] for line in lines[:3]}, words
        before = app.theme
        await listed(pilot, app, "dark")
        await pilot.press("enter")
        await pilot.press("down", "enter")
        assert app.theme != before, "a command that was found by its help is run"


async def test_the_palette_shows_every_key_as_the_settings_have_it() -> None:
    keys = KEYMAP.rebound({"pause": ["f5", "["], "tau_h_down": [], "theme": []})
    async with shown(view=View(keys=keys)) as (app, _, pilot):
        await pilot.press("ctrl+p")
        heads = {line.splitlines()[0].rstrip() for line in await listed(pilot, app, "")}
        assert {"pause   f5 [", "theme", "mask   t", "scrub: back   ←", "back   esc"} <= heads
        assert len(heads) == len(list(keys.commands))


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
    assert not set("\x1b\x07\x9b\u202e\r") & set(printed(KEYMAP, HOSTILE)), "what was typed is cleaned"


async def test_words_are_found_on_the_help_page_as_in_the_text() -> None:
    async with shown(view=View(keys=KEYMAP.rebound({"search": ["f6"]})), size=(80, 24)) as (app, _, pilot):
        await pilot.press("?", "f6", *"theme", "escape")
        assert isinstance(app.screen, HelpScreen), "a search that is given up leaves it as it was"
        await pilot.press("G")
        page = app.screen.query_one(VerticalScroll)
        full = page.max_scroll_y
        await pilot.press("f6")
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


def test_the_help_page_says_how_the_rounds_of_this_run_are_decoded() -> None:
    told = structs.replace(run(), path="host", path_reason="native CPU kernels")
    page = printed(KEYMAP, "native kernels", told)
    assert "host, native CPU kernels" in page
    assert "This run" in page
    assert "This run" not in printed(KEYMAP, "")

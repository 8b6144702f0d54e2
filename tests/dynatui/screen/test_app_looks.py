"""Inspecting and looking back: cursor, panels, time line, stages, drawer, mouse, palette."""

import itertools
import re
from functools import partial

import pytest
from msgspec import structs
from rich.style import Style
from textual import events
from textual.command import CommandList
from textual.pilot import Pilot

from decoder.analysis.metrics import fold
from decoder.session.steering import Stage
from dynatui.screen.app import DynaApp
from dynatui.screen.pages.page import Palette, TextPage
from dynatui.screen.widgets.canvas import Canvas
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Prompt, Record
from tests.dynatui.screen.shown_app import FULL, MIDWAY, TABBED, screen_text, shown
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import plain_round, run, runs_of, story, text_of, tree_round


async def test_escape_goes_back_to_what_happens_now() -> None:
    async with shown() as (app, source, pilot):
        await pilot.press("i")
        source.records.append(tree_round(6, " unseen"))
        app.tick()
        assert "unseen" not in screen_text(app)
        await pilot.press("escape")
        assert "unseen" in screen_text(app)
        assert app.scene.mode == "watch"


async def test_a_frozen_run_stays_when_the_next_prompt_begins() -> None:
    async with shown() as (app, source, pilot):
        await pilot.press("left")
        source.records += [Prompt(2, 2), run(prompt="Another tale"), tree_round(0)]
        app.tick()
        await pilot.pause()
        assert "Once upon" in screen_text(app)
        await pilot.press("space")
        assert "Another tale" in screen_text(app)


async def test_a_step_pauses_first_and_then_goes_on_by_stages() -> None:
    async with shown() as (app, source, pilot):
        await pilot.press(".")
        assert source.paused
        assert source.steering.stages == 0
        await pilot.press(".", ".")
        assert source.steering.stages == 2
        source.steering.stage = Stage("drafted", structs.replace(tree_round(6), accepted=[], committed=[], text=""))
        app.tick()
        await pilot.pause()
        assert "round 7" in screen_text(app)


async def test_why_it_paused_by_itself_is_said() -> None:
    async with shown() as (app, source, pilot):
        source.paused, source.steering.broke = True, "nothing accepted, round 6"
        app.draw(everything=True)
        await pilot.pause()
        assert "nothing accepted" in screen_text(app)


async def test_the_first_difference_from_ar_is_found() -> None:
    events: list[Record] = [run(), tree_round(0), plain_round("ar", 0), plain_round("ar", 1)]
    events.append(structs.replace(plain_round("ar", 2), committed=[7]))
    async with shown(events) as (app, _, pilot):
        await pilot.press("f")
        assert app.scene.mode == "inspect"
        assert app.scene.cursor == 2


async def test_the_first_line_says_that_the_text_is_not_that_of_ar() -> None:
    async with shown(story()) as (app, _, _pilot):
        figures = fold(story()).figures()
        assert figures["dynatree"].identical_to_ar is False
        assert "text differs" in screen_text(app).split("\n")[0]


async def test_results_of_prompts_are_kept() -> None:
    async with shown([Prompt(1, 2), *story()]) as (app, source, pilot):
        source.records += [Prompt(2, 2), run(prompt="Another"), tree_round(0)]
        app.tick()
        await pilot.press("7")
        assert app.scene.results[1].done
        assert "Once upon" in screen_text(app)


async def test_a_click_on_the_time_line_goes_there() -> None:
    async with shown() as (app, _, pilot):
        row = app.query_one("#timeline").region
        await pilot.click(offset=(row.x + 6, row.y))
        assert not app.scene.place.live
        assert app.scene.place.round < 6


async def test_a_click_on_a_token_inspects_it() -> None:
    async with shown() as (app, _, pilot):
        row = app.query_one("#text").region
        await pilot.click(offset=(row.x + 13, row.y + 1))
        assert app.scene.mode == "inspect"


async def test_a_click_on_a_slider_turns_it() -> None:
    async with shown() as (app, source, pilot):
        row = app.query_one("#knobs").region
        for x in range(row.x, row.x + 40, 2):
            await pilot.click(offset=(x, row.y + 1))
        assert source.turns
        assert {name for name, _ in source.turns} == {"tau_h"}


async def test_the_palette_finds_commands_by_name() -> None:
    async with shown() as (app, _, pilot):
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert {"freeze", "τh: down", "panel: work", "quit"} <= titles
        await pilot.press("ctrl+p")
        await pilot.press(*"mask", "enter")
        assert app.scene.mask


async def test_the_command_line_is_shown_and_copied() -> None:
    async with shown() as (app, _, pilot):
        app.command_line = lambda: "dynatui --tau-h 0.8"
        await pilot.press("y")
        assert isinstance(app.screen, TextPage)
        assert app.clipboard == "dynatui --tau-h 0.8"


async def test_other_symbols_are_in_every_cell_at_once() -> None:
    async with shown() as (app, _, pilot):
        await pilot.pause()
        await pilot.press("v", "v")
        assert app.scene.symbols == "ascii"
        for canvas in app.query(Canvas):
            strips = [canvas.render_line(y) for y in range(canvas.size.height)]
            assert "".join(strip.text for strip in strips).isascii(), canvas.id


def playing() -> TraceSource:
    source = TraceSource(runs_of([*story(30)]), speed=1.0)
    source.play(1.0)
    return source


async def replayed(app: DynaApp, pilot: Pilot[None]) -> None:
    app.tick()
    await pilot.pause()


async def test_a_recording_is_scrubbed_beyond_what_was_played() -> None:
    app = DynaApp(playing(), ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=FULL) as pilot:
        await replayed(app, pilot)
        before = app.scene.place.round
        await pilot.press("shift+right")
        assert app.scene.place.round == before + 10
        assert app.scene.place.rounds == 30
        await pilot.press("home")
        assert app.scene.place.round == 0


async def test_a_recording_plays_on_from_where_one_looks() -> None:
    source = playing()
    app = DynaApp(source, ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=FULL) as pilot:
        await replayed(app, pilot)
        await pilot.press("home", "right", "right")
        assert source.paused
        await pilot.press("space")
        await replayed(app, pilot)
        assert not source.paused
        assert app.scene.place.round == 2


async def test_a_recording_is_stepped_by_rounds() -> None:
    app = DynaApp(playing(), ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=FULL) as pilot:
        await replayed(app, pilot)
        before = app.scene.place.round
        await pilot.press(".", ".")
        assert app.scene.place.round == before + 2


async def test_a_palette_that_is_closed_while_it_opens_ends_in_nothing() -> None:
    async with shown() as (app, _, pilot):
        palette = Palette()
        await app.push_screen(palette)
        await palette.remove_children()
        palette._gather_commands("")
        await pilot.pause()
        assert app.is_running
        await pilot.press("escape")
        assert not isinstance(app.screen, Palette)


async def test_a_click_on_a_command_that_is_gone_ends_in_nothing() -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("ctrl+p")
        await pilot.pause(0.5)
        commands = app.screen.query_one(CommandList)
        assert commands.option_count > 1
        x, y, row = *commands.region.offset, Style(meta={"option": 1})
        click = events.Click(
            commands, 0, 0, 0, 0, 1, shift=False, meta=False, ctrl=False, screen_x=x, screen_y=y, style=row
        )
        commands.clear_options()
        commands.post_message(click)
        await pilot.pause()
        assert app.is_running
        assert isinstance(app.screen, Palette)
        assert app.screen.query_one(CommandList) is commands


async def test_a_palette_is_opened_again_before_the_last_one_is_gone() -> None:
    async with shown() as (app, _, pilot):
        app.action_command_palette()
        app.screen.dismiss()
        app.action_command_palette()
        await pilot.pause()
        assert isinstance(app.screen, Palette)
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


async def test_every_panel_counts_rounds_from_one() -> None:
    async with shown([*MIDWAY[:5]]) as (app, _, pilot):
        await pilot.press("P", "i")
        for panel in "1268":
            await pilot.press(panel)
            assert set(re.findall(r"round (\d+)", screen_text(app))) == {"1"}


def told_rounds(page: str) -> set[str]:
    return set(re.findall(r"(?<!── )round (\d+)", page))


async def test_every_panel_shows_the_round_of_the_token_that_is_inspected() -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("i", "home", "right", "right", "right")
        page = screen_text(app)
        assert told_rounds(page) == {"2"}
        assert app.viewpoint.state.rounds == 2
        assert "index 3 of 18 tokens" in page
        await pilot.press("left")
        assert told_rounds(screen_text(app)) == {"1"}
        await pilot.press("escape")
        assert app.viewpoint.live


async def test_inspecting_shows_the_same_figures_as_scrubbing_to_that_round() -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("home", "right", "right")
        scrubbed = app._scene_builder.scene(app.scene, 0.0, visible=())
        await pilot.press("escape", "i", "home", *["right"] * 4)
        inspected = app._scene_builder.scene(app.scene, 0.0, visible=())
        assert (inspected.state, inspected.place) == (scrubbed.state, scrubbed.place)


def recorded() -> DynaApp:
    return DynaApp(TraceSource(runs_of(story()), speed=1.0), ticking=False, clock=lambda: 0.0)


async def test_in_a_recording_the_end_is_its_end_and_not_what_was_played() -> None:
    app = recorded()
    async with app.run_test(size=FULL) as pilot:
        await pilot.pause()
        app.source.advance(0.25)
        app.tick()
        played = app.viewpoint.work.rounds("dynatree")
        assert 0 < played < 6
        await pilot.press("G")
        assert app.scene.place.round == 6
        assert "round 6 of 6" in screen_text(app)
        assert "looking ahead" in screen_text(app)
        await pilot.press("home", "right")
        assert "looking back" in screen_text(app)
        assert app.viewpoint.work.rounds("dynatree") == played


async def test_a_click_ahead_on_the_time_line_of_a_recording_looks_ahead_and_plays_on_from_there() -> None:
    app = recorded()
    async with app.run_test(size=FULL) as pilot:
        await pilot.pause()
        app.tick()
        line = next(line for line in screen_text(app).splitlines() if "◀" in line)
        y = screen_text(app).splitlines().index(line)
        await pilot.click(offset=(line.index("▶") - 2, y))
        assert "looking ahead" in screen_text(app)
        assert app.scene.place.round >= 5
        await pilot.press("P")
        assert app.viewpoint.live
        assert app.viewpoint.work.rounds("dynatree") >= 5


async def test_looking_back_what_comes_later_stays_there_and_is_dim() -> None:
    app = recorded()
    async with app.run_test(size=FULL) as pilot:
        await pilot.pause()
        app.tick()
        await pilot.press("G", "left", "left", "left", "left")
        rows = app.query_one("#text", Canvas)._rows
        dim = "".join(text for row in rows for text, ink in row.row if ink == "ghost")
        assert "atatime" in dim
        assert app.scene.place.round == 2
        assert any(ink == "ghost" for row in app.query_one("#timeline", Canvas)._rows for text, ink in row.row)


FIVE = ("dynatree", "auto", "ar", "linear", "fixed")


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
    def numbers(app: DynaApp) -> list[int]:
        drawn = "\n".join(text_of(row.row) for row in app.query_one("#tree", Canvas)._rows)
        return [int(number) for number in re.findall(r"── round (\d+): ", drawn)]

    async with shown(story()[:-3], size=size) as (app, _, pilot):
        await pilot.press("2", "e")
        assert numbers(app) == [5, 4, 3, 2, 1][: len(numbers(app))]
        assert len(numbers(app)) >= 3
        await pilot.press("left")
        assert numbers(app) == [4, 3, 2, 1][: len(numbers(app))]


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
        assert "tokens a pass" in page


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_the_panel_of_knobs_has_no_empty_rows_and_grows_with_its_notes(size: tuple[int, int]) -> None:
    async with shown(story()[:3], size=size) as (app, source, pilot):
        await pilot.pause()
        knobs = app.query_one("#knobs", Canvas)
        assert knobs.size.height == 4
        source.records += story()[3:-3]
        app.read_events()
        app.draw(everything=True)
        await pilot.pause()
        assert knobs.size.height > 4
        assert all(text_of(row.row).strip("│ ") for row in knobs._rows[1:-1])


test_transcript = transcripts(
    {
        "a cursor in the text says why a token is there": (shown, "i"),
        "the tree shows the round of the inspected token": (shown, "i home"),
        "the cursor goes by token round and end and stays inside": (
            shown,
            "i left",
            "shift+left",
            "end right right",
            "home left",
        ),
        "the cursor goes by line": (partial(shown, [*story(40)[:-3]]), "i home down", "up"),
        "scrubbing shows every panel as it was": (shown, "left left", "home", "shift+right", "end"),
        "conditions to pause at are switched by number": (shown, "B", "1 5 right 1", "escape"),
        "a prompt is edited in place": (shown, "E", "! ctrl+r"),
        "an edit can be left and an unchanged one is none": (shown, "E x escape E ctrl+r"),
        "the drawer turns any knob by key and by value": (shown, "d", "left 0 . 7 enter", "down right", "escape"),
        "undo takes back the last turn": (shown, "[ u"),
        "a panel can have the screen for itself": (shown, "2 e", "escape"),
        "tab goes from panel to panel": (partial(shown, size=TABBED), "tab tab", "shift+tab shift+tab shift+tab"),
        "heat mask symbols and theme change": (shown, "o t v T", "down enter"),
    }
)

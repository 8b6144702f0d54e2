"""The app on a scripted source: keys, frame rate, layouts, freezing, failures and leaving."""

import re
from functools import partial

import pytest

from decoder.errors import ConfigError
from decoder.events import Knob
from dynatui.keymap import PANELS
from dynatui.screen.app import DynaApp
from dynatui.screen.widgets.canvas import Canvas
from dynatui.session import View
from dynatui.state.run_state import Failure, Loading, Prompt
from tests.dynatui.screen.shown_app import FULL, MIDWAY, SMALL, TABBED, screen_text, shown, visible
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import ScriptedSource, run, story, tree_round


@pytest.mark.parametrize(
    ("key", "turn"),
    [
        ("[", ("tau_h", 0.75)),
        ("]", ("tau_h", 0.85)),
        ("{", ("tau_l", 0.35)),
        ("}", ("tau_l", 0.45)),
        ("-", ("d0", 5.0)),
        ("=", ("d0", 7.0)),
    ],
)
async def test_a_turned_knob_reaches_the_source_and_shows_at_once(key: str, turn: tuple[str, float]) -> None:
    async with shown() as (app, source, pilot):
        await pilot.press(key)
        assert source.turns == [turn]
        assert "→" in screen_text(app)


async def test_what_history_has_moved_back_is_held_by_one_key() -> None:
    turn = Knob(method="dynatree", round=6, name="d0", old=6.0, new=2.0, source="user")
    back = Knob(method="dynatree", round=7, name="d0", old=2.0, new=3.0, source="history")
    async with shown([*story()[:-3], turn, tree_round(6, d0=2.0), back]) as (app, source, pilot):
        assert "history moves D0 back: you set 2, now 3" in screen_text(app)
        await pilot.press("H")
        assert source.turns == [("history", 0.0), ("d0", 2.0), ("tau_h", 0.9)]


async def test_every_panel_shows_the_method_that_is_watched() -> None:
    async with shown() as (app, source, pilot):
        named = set(re.findall("(?:Text by|Knobs of) \\w+", screen_text(app)))
        assert named == {"Text by dynatree", "Knobs of dynatree"}
        await pilot.press("w")
        assert source.steering.watched == "ar"
        told = screen_text(app)
        assert "Text by ar" in told
        assert "ar has no knobs; w watches another method" in told
        await pilot.press("W")
        assert (source.steering.watched, app.viewpoint.state.watched) == ("dynatree", "dynatree")


async def test_a_turn_of_a_knob_pins_a_by_itself_and_compares_as_soon_as_it_can() -> None:
    async with shown([run(), *(tree_round(number) for number in range(12))]) as (app, source, pilot):
        source.records.append(Knob(method="dynatree", round=12, name="tau_h", old=0.9, new=0.5, source="user"))
        source.records += [tree_round(number, tau_h=0.5) for number in range(12, 15)]
        app.read_events()
        app.draw(everything=True)
        await pilot.pause()
        assert "too few rounds yet: A has 12, B has 3; each needs 10" in screen_text(app)
        source.records += [tree_round(number, tau_h=0.5) for number in range(15, 22)]
        app.read_events()
        app.draw(everything=True)
        await pilot.pause()
        assert "no clear difference so far  L-bar: B - A 0 (0 to 0)  tokens/s: B - A" in screen_text(app)
        await pilot.press("b")
        assert app.event_reader.pins["dynatree"].by_hand


async def test_a_knob_in_force_is_turned_on_from_where_it_is() -> None:
    async with shown() as (app, source, pilot):
        await pilot.press("=")
        source.records += [
            Knob(method="dynatree", round=6, name="d0", old=6.0, new=7.0, source="user", turn=1),
            tree_round(6, d0=6.5),
        ]
        app.tick()
        await pilot.press("-")
        assert source.turns == [("d0", 7.0), ("d0", 5.5)]


async def test_knobs_stay_within_their_bounds() -> None:
    async with shown() as (_, source, pilot):
        await pilot.press(*["="] * 4, *["{"] * 12, *["["] * 20)
        turned = dict(source.turns)
        assert turned["d0"] == 7.0
        assert turned["tau_l"] == 0.01
        assert turned["tau_h"] == 0.02


async def test_a_frozen_view_stands_still_while_data_is_read() -> None:
    async with shown() as (app, source, pilot):
        await pilot.press("space")
        source.records.append(tree_round(6, " unseen"))
        app.tick()
        await pilot.pause()
        assert "FROZEN" in screen_text(app)
        assert "unseen" not in screen_text(app)
        assert app.viewpoint.work.rounds("dynatree") == 7
        await pilot.press("space")
        assert "unseen" in screen_text(app)


@pytest.mark.parametrize("keys", [("q",), ("ctrl+c",), ("?", "q"), ("?", "ctrl+c")])
async def test_the_app_can_be_left_from_everywhere(keys: tuple[str, ...]) -> None:
    async with shown() as (app, source, pilot):
        await pilot.press(*keys)
        assert source.stopped
        assert app.return_code == 0


async def test_runs_that_are_over_are_forgotten() -> None:
    async with shown(story()) as (app, source, _):
        source.records += [*story()[:-3]]
        app.tick()
        assert source.records == story()[:-3]
        assert app.viewpoint.work.rounds("dynatree") == 6
        app.tick()
        assert app.viewpoint.work.rounds("dynatree") == 6


async def test_a_failure_is_shown_in_every_tab_and_its_exit_code_kept() -> None:
    async with shown([*MIDWAY], TABBED) as (app, source, pilot):
        await pilot.press("2")
        source.records.append(Failure("no space on the device\nGive a smaller model.", 3))
        app.tick()
        await pilot.pause()
        app.tick()
        await pilot.pause()
        assert "no space on the device" in screen_text(app)
        assert "R tries again" in screen_text(app)
        await pilot.press("q")
        assert app.return_code == 3


async def test_after_a_failure_restart_tries_again() -> None:
    async with shown([Failure("no such model", 3)]) as (app, source, pilot):
        await pilot.press("R")
        assert source.steps == [0]
        source.records += [Prompt(1, 1), run(), tree_round(0)]
        app.tick()
        await pilot.pause()
        assert "ERROR" not in screen_text(app)
        assert "a time" in screen_text(app)


async def test_a_turned_knob_is_marked_on_the_curves() -> None:
    async with shown() as (app, _, _pilot):
        assert "▲τh 0.9→0.8" in screen_text(app)


async def test_at_full_size_every_panel_is_there() -> None:
    async with shown() as (app, _, _pilot):
        assert visible(app) == {
            "status",
            "cards",
            "text",
            "race",
            "tree",
            "acceptance",
            "depth",
            "timeline",
            "knobs",
            "footer",
        }


async def test_a_large_terminal_explains_itself() -> None:
    async with shown(size=(200, 60)) as (app, _, _pilot):
        assert "guide" in visible(app)
        assert "How to read this" in screen_text(app)
        assert "Tokens per round" in screen_text(app)


@pytest.mark.parametrize(
    ("key", "panels"),
    zip(
        "123456789",
        [
            {"text", "tree", "race"},
            {"tree", "trends"},
            {"acceptance", "depth", "trends"},
            {"race", "trends"},
            {"work", "trends"},
            {"whatif", "trends"},
            {"prompts", "trends"},
            {"log", "trends"},
            {"sampling", "trends"},
        ],
        strict=True,
    ),
)
async def test_in_a_small_terminal_tabs_share_one_place(key: str, panels: set[str]) -> None:
    async with shown(size=TABBED) as (app, _, pilot):
        await pilot.press(key)
        assert visible(app) == {"status", "cards", "tabs", "knobs", "footer"} | panels
        assert app.scene.panel == PANELS[int(key) - 1]


@pytest.mark.parametrize("size", [(40, 10), (30, 6), (20, 3), (10, 1), (1, 1), (300, 8), (20, 90)])
async def test_no_size_breaks_the_screen_or_leaves_it_blank(size: tuple[int, int]) -> None:
    async with shown(size=size) as (app, _, pilot):
        await pilot.press("2", "3", "4", "1")
        assert size == (1, 1) or screen_text(app).strip()


async def test_the_screen_follows_a_resize() -> None:
    async with shown() as (app, _, pilot):
        for size in (TABBED, SMALL, (200, 60), FULL):
            await pilot.resize_terminal(*size)
            rows = screen_text(app).split("\n")
            assert (len(rows[0]), len(rows)) == size
            assert "18 in 6" in rows[0] or "18 tokens in 6 passes" in rows[0]


async def test_only_changed_rows_are_drawn_again() -> None:
    async with shown() as (app, source, pilot):
        text = app.query_one("#text", Canvas)
        before = list(text._rows)
        source.records.append(tree_round(6, " end"))
        app.tick()
        await pilot.pause()
        assert 0 < sum(a != b for a, b in zip(before, text._rows, strict=True)) <= 2


async def test_panels_are_drawn_no_more_often_than_they_should() -> None:
    now = [0.0]
    source = ScriptedSource(MIDWAY)
    app = DynaApp(source, ticking=False, clock=lambda: now[0])
    async with app.run_test(size=FULL) as pilot:
        await pilot.pause()
        tree = app.query_one("#tree", Canvas)
        before = list(tree._rows)
        now[0] = 0.1
        source.records.append(tree_round(6))
        app.tick()
        assert tree._rows == before
        now[0] = 0.3
        app.tick()
        assert tree._rows != before


async def test_without_colour_no_cell_has_one_and_origins_still_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown() as (app, _, _pilot):
        styles = {}
        for strip in app.screen._compositor.render_strips():
            for segment in strip:
                assert segment.style is None or segment.style.color is None or segment.style.color.is_default
                styles[segment.text.strip()] = segment.style
        assert styles["at"] is not None
        assert styles["at"].bold
        assert styles["time"] is not None
        assert styles["time"].underline


async def test_in_ascii_mode_the_screen_is_ascii() -> None:
    async with shown(view=View(symbols="ascii")) as (app, _, _pilot):
        assert screen_text(app).isascii()


@pytest.mark.parametrize("theme", ["textual-light", "ansi-dark", "nord"])
async def test_other_themes_work(theme: str) -> None:
    async with shown(view=View(theme=theme)) as (app, _, _pilot):
        assert "a time" in screen_text(app)


def test_an_unknown_theme_is_refused_with_the_names_of_the_others() -> None:
    with pytest.raises(ConfigError, match=r"theme is 'no-such'; give one of .*dynatui"):
        DynaApp(ScriptedSource(), View(theme="no-such"))


@pytest.mark.parametrize(("fps", "ssh", "expected"), [(None, "", 10), (None, "10.0.0.1", 5), (8, "10.0.0.1", 8)])
def test_fewer_frames_over_ssh(fps: int | None, ssh: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    if ssh:
        monkeypatch.setenv("SSH_CONNECTION", ssh)
    assert DynaApp(ScriptedSource(), View(fps=fps))._fps == expected


test_transcript = transcripts(
    {
        "history is switched off with its knobs where they are": (shown, "h"),
        "without such a knob there is nothing to hold": (shown, "H"),
        "two presses add up before the first is in force": (shown, "[ ["),
        "a turn against the stop is none": (partial(shown, [run(), tree_round(0, d0=7.0)]), "= ="),
        "a recordings knobs cannot be turned": (partial(shown, steerable=False), "[ h ="),
        "knobs that are turned while the models load wait for the first round": (
            partial(shown, [Loading("importing torch")]),
            "[ - space P n",
        ),
        "pause holds the source and goes on": (shown, "P", "P"),
        "next restart and previous move among the prompts": (partial(shown, [Prompt(1, 2), *story()]), "n R N"),
        "speed halves and doubles": (shown, "< < >"),
        "help names every key and closes again": (shown, "?", "?", "? escape"),
    }
)

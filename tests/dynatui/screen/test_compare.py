"""Two recordings side by side: both are shown at the same elapsed time."""

import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from decoder.errors import ConfigError
from decoder.events import Event, Round, Run
from decoder.methods.fixed import Fixed
from dynatui.keymap import SIDE_BY_SIDE, PanelName
from dynatui.record.reader import read_events
from dynatui.render import status, versus
from dynatui.screen.compare import CompareApp, panels
from dynatui.screen.widgets.canvas import Canvas
from dynatui.session import View
from dynatui.sources.playback import Lockstep, Side
from dynatui.sources.source import REST_S
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import HOSTILE, lines, plain_round, run, runs_of, state_of, story, tree_round

TRACE = read_events(Path(__file__).parents[2] / "traces" / "lighthouse.jsonl")
SIZES = [(80, 24), (120, 40), (200, 60), (40, 10)]
Compare = Callable[..., bool]


def watching(events: list[Event], method: str) -> list[Event]:
    return [
        structs.replace(event, methods={method: event.methods[method], **event.methods})
        if isinstance(event, Run)
        else event
        for event in events
    ]


def slower(events: list[Event], factor: float = 2.0) -> list[Event]:
    return [structs.replace(e, t=e.t * factor) if isinstance(e, Round) else e for e in events]


def stepping(left: list[Event] | None = None, right: list[Event] | None = None) -> Lockstep:
    return Lockstep(
        Side("a.jsonl", runs_of(left or story())), Side("b.jsonl", runs_of(right or slower(story()))), speed=1.0
    )


def rounds(show: Lockstep) -> tuple[int, ...]:
    return tuple(state.rounds for state in show.states())


def test_both_have_decoded_for_the_same_time() -> None:
    show = stepping()
    for seconds, shown in (
        (0.0, (0, 0)),
        (0.02, (1, 0)),
        (0.05, (2, 1)),
        (0.12, (6, 3)),
        (0.24, (6, 6)),
        (0.05, (2, 1)),
    ):
        show.seek(seconds)
        assert rounds(show) == shown


def test_neither_pauses_nor_other_methods_count() -> None:
    waited = [structs.replace(e, wall_s=e.wall_s + 60.0) if isinstance(e, Round) else e for e in story()]
    show = stepping(right=waited)
    show.seek(0.05)
    assert rounds(show) == (2, 2)


def test_the_end_of_a_run_has_its_summary() -> None:
    show = stepping()
    show.seek(0.13)
    assert [state.done for state in show.states()] == [True, False]
    show.seek(9.0)
    assert [state.done for state in show.states()] == [True, True]
    assert show.states()[0].figures() == state_of(story()).figures()


def test_a_step_leads_to_the_next_round_of_either() -> None:
    show = stepping()
    seen = []
    for _ in range(4):
        show.step(1)
        seen.append(rounds(show))
    assert seen == [(1, 0), (2, 1), (3, 1), (4, 2)]
    show.step(-2)
    assert rounds(show) == (2, 1)
    show.step(-10)
    assert rounds(show) == (0, 0)
    show.step(100)
    assert show.ended


def test_it_plays_holds_and_changes_speed() -> None:
    show = stepping()
    for now in (5.0, 5.05):
        show.advance(now)
    assert show.played_s == pytest.approx(0.05)
    show.paused = True
    show.advance(9.0)
    show.paused = False
    show.set_speed(0.5)
    show.advance(9.1)
    assert show.played_s == pytest.approx(0.1)


def test_runs_are_paired_and_the_next_pair_follows_after_a_rest() -> None:
    show = stepping([*story(), *story()], [*story(), run(prompt="second"), *story()[1:], *story()])
    show.seek(9.0)
    for now in (0.0, REST_S / 2):
        show.advance(now)
    assert show.number == 0
    show.advance(REST_S)
    assert (show.pairs, show.number, show.played_s) == (2, 1, 0.0)
    assert [state.prompt_text for state in show.states()] == ["Once upon", "second"]
    show.go(1)
    assert show.number == 0


def test_after_the_last_pair_the_show_stays() -> None:
    show = stepping()
    for now in (0.0, 1e3, 2e3, 3e3):
        show.advance(now)
    assert (show.number, show.ended, show.played_s) == (0, True, show.seconds)


def test_a_run_without_rounds_is_over_at_once() -> None:
    show = stepping(left=[run()], right=[run()])
    assert show.ended
    show.step(1)
    assert rounds(show) == (0, 0)
    assert lines(versus.table(show.states(), (80, 7)))[2].split()[1:3] == ["A", "dynatree"]


def test_the_first_speed_lets_the_faster_text_be_read() -> None:
    fast = Side("a", runs_of(story()))
    assert fast.rate == 150.0
    assert Lockstep(fast, Side("b", runs_of(slower(story(), 100.0)))).speed == 0.125


@pytest.fixture
def states() -> tuple[RunState, RunState]:
    show = stepping()
    show.seek(0.12)
    return show.states()


def test_the_table_has_both_figures_and_their_ratio(states: tuple[RunState, RunState]) -> None:
    _, head, a, b, ratio, verdict, _ = lines(versus.table(states, (110, 7)))
    assert " ".join(head.split()[1:-1]) == "whole run tokens/s L-bar acc. rate ms/round tokens rounds distinct x plain"
    assert a.split()[1:9] == ["A", "dynatree", "150", "3.00", "40%", "20.00", "18", "6"]
    assert b.split()[1:9] == ["B", "dynatree", "75.0", "3.00", "40%", "40.00", "9", "3"]
    assert ratio.split()[1:10] == ["B", "/", "A", "0.50", "1.00", "1.00", "2.00", "0.50", "0.50"]
    assert "= the same text, as far as both have come: 9 tokens" in verdict


def test_a_figure_that_cannot_be_known_has_no_ratio() -> None:
    plain: list[Event] = [run(("ar",)), plain_round("ar", 0)]
    both = (state_of(plain), state_of(story()))
    assert lines(versus.table(both, (80, 7)))[4].split()[5:8] == ["3.00", "-", "1.00"]


def test_texts_that_differ_are_told_by_the_place() -> None:
    other = structs.replace(tree_round(0), committed=[11, 13, 7])
    left, right = state_of([run(), tree_round(0)]), state_of([run(), other])
    assert "the same for 2 tokens, then differ" in lines([versus.texts_compared(left, right)])[0]


@pytest.mark.parametrize(
    ("changes", "said"), [({"prompt_tokens": [9]}, "the prompts differ"), ({"target": "other"}, "the targets differ")]
)
def test_figures_of_different_work_are_called_so(changes: dict[str, object], said: str) -> None:
    left, right = state_of(story()), state_of([structs.replace(run(), **changes), *story()[1:]])
    assert said in lines([versus.texts_compared(left, right)])[0]


@pytest.mark.parametrize("width", [0, 1, 8, 20, 40, 59, 80, 120, 300])
def test_every_row_is_as_wide_as_its_place(states: tuple[RunState, RunState], width: int) -> None:
    moment = versus.VersusView(0.1, 0.2, 1, 2, 0.25, paused=False, ended=False)
    for name in ("a.jsonl", "漢" * 50):
        rows = [versus.heading(1, name, states[1], width), versus.moment(moment, width)]
        for row in [*rows, *versus.table(states, (width, 7)), *versus.table(states, (width, 5))]:
            assert sum(map(cells, lines([row]))) == width


def test_without_arrows_the_keys_are_named_in_words() -> None:
    assert "left right step  shift left shift right" in lines([status.keys(SIDE_BY_SIDE.keys, 200, in_words=True)])[0]


def cells(text: str) -> int:
    return sum(2 if "\u4e00" <= character <= "\u9fff" else 1 for character in text)


@pytest.mark.parametrize(
    ("height", "chosen", "shown"),
    [
        (24, "text", ("text",)),
        (24, "curves", ("curves",)),
        (40, "text", ("text", "tree")),
        (40, "curves", ("text", "curves")),
        (60, "text", ("text", "tree", "curves")),
    ],
)
def test_higher_terminals_show_more_panels(height: int, chosen: PanelName, shown: tuple[str, ...]) -> None:
    assert panels(height, chosen) == shown


def app_at(share: float = 0.5, view: View | None = None, runs: int = 1) -> CompareApp:
    left, right = (
        Side("paper.jsonl", runs_of(TRACE * runs)),
        Side("fixed-5-2.jsonl", runs_of(watching(TRACE, "fixed") * runs)),
    )
    show = Lockstep(left, right, speed=0.0625)
    show.seek(share * show.seconds)
    show.paused = True
    return CompareApp(show, view, ticking=False, clock=lambda: 0.0)


async def test_every_key_does_what_its_line_says() -> None:
    app = app_at(runs=2)
    async with app.run_test(size=(80, 24)) as pilot:
        show, places = app.lockstep, list[float]()
        for key in ("home", "right", "right", "left", "shift+right", "end"):
            await pilot.press(key)
            places.append(show.played_s)
        times = sorted({0.0, *show.sides[0].times, *show.sides[1].times})
        assert places == [0.0, times[1], times[2], times[1], times[11], show.seconds]
        await pilot.press("less_than_sign")
        assert show.speed == 0.03125
        await pilot.press("greater_than_sign", "greater_than_sign")
        assert show.speed == 0.125
        await pilot.press("n")
        assert (show.number, show.played_s) == (1, 0.0)
        await pilot.press("N")
        assert show.number == 0
        await pilot.press("space")
        assert not show.paused
        await pilot.press("P")
        assert show.paused
        await pilot.press("3")
        assert app.chosen == "curves"
        await pilot.press("v")
        assert app.scene.symbols == "block"
        await pilot.press("q")
    assert app.return_code == 0


def long_run(method: str, parameters: dict[str, Any], rounds: int, most: int) -> list[Event]:
    begun = structs.replace(run((method,)), methods={method: parameters}, max_new_tokens=most)
    return [begun, *(structs.replace(tree_round(number), method=method, knobs=None) for number in range(rounds))]


def axes(app: CompareApp, letter: str) -> tuple[list[str], list[str]]:
    canvas = app.query_one(f"#{letter}-curves", Canvas)
    rows = [canvas.render_line(y).text for y in range(canvas.size.height)]
    return [row[-7:-1].strip() for row in rows[1:-2]], re.findall(r"\d+", rows[-2])


@pytest.mark.parametrize("share", [0.5, 1.0])
async def test_curves_side_by_side_share_their_axes(share: float) -> None:
    left = long_run("linear", {"k": 3}, 250, 1000)
    right = long_run("fixed", asdict(Fixed(depth=9)), 200, 700)
    show = stepping(left, right)
    show.seek(share * show.seconds)
    show.paused = True
    app = CompareApp(show, ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        scales, tokens = zip(*(axes(app, letter) for letter in versus.LETTERS), strict=True)
        assert scales[0] == scales[1]
        assert scales[0][0] == "10.0"
        newest = max(state.lane.committed for state in show.states())
        first = max(0, newest - 512)
        assert tokens[0] == tokens[1] == [str(first), str(first + 512)]


async def test_play_at_the_end_begins_again() -> None:
    app = app_at(1.0)
    async with app.run_test() as pilot:
        await pilot.press("space", "space")
        assert (app.lockstep.paused, app.lockstep.played_s) == (False, 0.0)


async def test_help_opens_and_closes_and_quits() -> None:
    app = app_at()
    async with app.run_test() as pilot:
        await pilot.press("question_mark")
        assert len(app.screen_stack) == 2
        await pilot.press("escape")
        assert len(app.screen_stack) == 1
        await pilot.press("question_mark", "q")
    assert app.return_code == 0


async def test_it_survives_any_size() -> None:
    app = app_at()
    async with app.run_test(size=(120, 40)) as pilot:
        for size in ((1, 1), (10, 3), (40, 10), (300, 80), (80, 24), (59, 200)):
            await pilot.resize_terminal(*size)
            app.tick()


async def test_the_layout_is_that_of_the_new_size_at_once() -> None:
    app = app_at()
    async with app.run_test(size=(200, 60)) as pilot:
        for size, classes in (((60, 14), {"flat"}), ((200, 60), {"wide"})):
            await pilot.resize_terminal(*size)
            assert app.screen.classes & {"wide", "flat"} == classes


async def test_foreign_names_steer_nothing() -> None:
    events = [structs.replace(e, target=HOSTILE) if isinstance(e, Run) else e for e in story()]
    app = CompareApp(
        Lockstep(Side(HOSTILE, runs_of(events)), Side("b", runs_of(events))), ticking=False, clock=lambda: 0.0
    )
    async with app.run_test() as pilot:
        await pilot.pause()
        told = "".join(s.text for strip in app.screen._compositor.render_strips() for s in strip)
    assert not set("\x1b\x07\x9b\u202e\r\x7f") & set(told)


def test_an_unknown_theme_is_refused() -> None:
    with pytest.raises(ConfigError, match="theme is 'mud'"):
        app_at(view=View(theme="mud"))


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME", "SSH_CONNECTION", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_screen(size: tuple[int, int], snap_compare: Compare) -> None:
    assert snap_compare(app_at(), terminal_size=size)


@pytest.mark.parametrize("key", ["2", "3"])
def test_the_panels_of_a_small_terminal(key: str, snap_compare: Compare) -> None:
    assert snap_compare(app_at(), press=[key], terminal_size=(80, 24))


def test_without_colour(snap_compare: Compare) -> None:
    assert snap_compare(app_at(view=View(color=False)), terminal_size=(120, 40))


def test_in_ascii(snap_compare: Compare) -> None:
    assert snap_compare(app_at(view=View(symbols="ascii")), terminal_size=(120, 40))


def test_in_a_light_theme(snap_compare: Compare) -> None:
    assert snap_compare(app_at(view=View(theme="textual-light")), terminal_size=(120, 40))


def test_the_help(snap_compare: Compare) -> None:
    assert snap_compare(app_at(), press=["question_mark"], terminal_size=(80, 24))

"""Two recordings side by side: both are shown at the same elapsed time."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs
from rich.cells import cell_len

from decoder.events import Event, Round, Run
from decoder.methods.fixed import Fixed
from dynatui.keymap import SIDE_BY_SIDE
from dynatui.record.reader import read_events
from dynatui.render import status, versus
from dynatui.screen.canvas import Canvas
from dynatui.screen.compare import CompareApp
from dynatui.session import View
from dynatui.sources.playback import Lockstep, Side
from dynatui.sources.source import REST_S
from dynatui.state.run_state import RunState
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, plain_round, run, runs_of, state_of, story, tree_round

TRACE = read_events(Path(__file__).parents[2] / "traces" / "lighthouse.jsonl")
SMALL, FULL = (80, 24), (120, 40)


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
    sides = Side("a.jsonl", runs_of(left or story())), Side("b.jsonl", runs_of(right or slower(story())))
    return Lockstep(*sides, speed=1.0)


def still(show: Lockstep, share: float | None = None, view: View | None = None) -> CompareApp:
    if share is not None:
        show.seek(share * show.seconds)
        show.paused = True
    return CompareApp(show, view, ticking=False, clock=float)


def app_at(share: float = 0.5, view: View | None = None, runs: int = 1) -> CompareApp:
    left, right = Side("paper.jsonl", runs_of(TRACE * runs)), Side("fixed-5-2.jsonl", runs_of(FIXED * runs))
    return still(Lockstep(left, right, speed=0.0625), share, view)


FIXED = watching(TRACE, "fixed")


def rounds(show: Lockstep) -> tuple[int, ...]:
    return tuple(state.rounds for state in show.states())


def test_both_have_decoded_for_the_same_time_and_neither_pauses_nor_other_methods_count() -> None:
    show = stepping()
    places = {0.0: (0, 0), 0.02: (1, 0), 0.05: (2, 1), 0.12: (6, 3), 0.24: (6, 6)}
    for seconds in (*places, 0.05):
        show.seek(seconds)
        assert rounds(show) == places[seconds]
    waited = [structs.replace(e, wall_s=e.wall_s + 60.0) if isinstance(e, Round) else e for e in story()]
    show = stepping(right=waited)
    show.seek(0.05)
    assert rounds(show) == (2, 2)


def test_the_end_of_a_run_has_its_summary() -> None:
    show = stepping()
    for seconds, done in ((0.13, [True, False]), (9.0, [True, True])):
        show.seek(seconds)
        assert [state.done for state in show.states()] == done
    assert show.states()[0].figures() == state_of(story()).figures()


def test_a_step_leads_to_the_next_round_of_either() -> None:
    show = stepping()
    for step, place in ((1, (1, 0)), (1, (2, 1)), (1, (3, 1)), (1, (4, 2)), (-2, (2, 1)), (-10, (0, 0))):
        show.step(step)
        assert rounds(show) == place
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


def test_after_the_last_pair_the_show_stays_and_a_run_without_rounds_is_over_at_once() -> None:
    show = stepping()
    for now in (0.0, 1e3, 2e3, 3e3):
        show.advance(now)
    assert (show.number, show.ended, show.played_s) == (0, True, show.seconds)
    show = stepping(left=[run()], right=[run()])
    assert show.ended
    show.step(1)
    assert rounds(show) == (0, 0)
    assert lines(versus.table(show.states(), (80, 7)))[2].split()[1:3] == ["A", "dynatree"]


def test_the_first_speed_lets_the_faster_text_be_read() -> None:
    fast = Side("a", runs_of(story()))
    assert fast.rate == 150.0
    assert Lockstep(fast, Side("b", runs_of(slower(story(), 100.0)))).speed == 0.125


def midway() -> tuple[RunState, RunState]:
    show = stepping()
    show.seek(0.12)
    return show.states()


@pytest.mark.parametrize("width", [0, 1, 8, 20, 40, 59, 80, 120, 300])
def test_every_row_is_as_wide_as_its_place(width: int) -> None:
    states = midway()
    moment = versus.VersusView(0.1, 0.2, 1, 2, 0.25, paused=False, ended=False)
    rows = [versus.heading(1, name, states[1], width) for name in ("a.jsonl", "漢" * 50)]
    rows += [versus.moment(moment, width), *versus.table(states, (width, 7)), *versus.table(states, (width, 5))]
    assert {cell_len(line) for line in lines(rows)} == {width}


OTHER = structs.replace(tree_round(0), committed=[11, 13, 7])
DIFFERING: tuple[tuple[list[Event], list[Event]], ...] = (
    ([run(), tree_round(0)], [run(), OTHER]),
    (story(), [structs.replace(run(), prompt_tokens=[9]), *story()[1:]]),
    (story(), [structs.replace(run(), target="other"), *story()[1:]]),
)

test_golden = golden(
    {
        "the table has both figures and their ratio where they are known": lambda: [
            versus.table(midway(), (110, 7)),
            versus.table((state_of([run(("ar",)), plain_round("ar", 0)]), state_of(story())), (80, 7)),
        ],
        "what differs is told": lambda: [
            versus.texts_compared(state_of(left), state_of(right)) for left, right in DIFFERING
        ],
        "without arrows the keys are named in words": lambda: tuple(
            span for span, _ in status.buttons(SIDE_BY_SIDE.keys, 200, in_words=True)
        ),
    }
)


async def test_every_key_does_what_its_line_says() -> None:
    app = app_at(runs=2)
    async with app.run_test(size=SMALL) as pilot:
        show = app.lockstep
        times = sorted({0.0, *show.sides[0].times, *show.sides[1].times})
        for key, looks, found in (
            ("home", lambda: show.played_s, 0.0),
            ("right", lambda: show.played_s, times[1]),
            ("right", lambda: show.played_s, times[2]),
            ("left", lambda: show.played_s, times[1]),
            ("shift+right", lambda: show.played_s, times[11]),
            ("end", lambda: show.played_s, show.seconds),
            ("<", lambda: show.speed, 0.03125),
            (">", lambda: show.speed, 0.0625),
            ("n", lambda: (show.number, show.played_s), (1, 0.0)),
            ("N", lambda: show.number, 0),
            ("space", lambda: show.paused, False),
            ("P", lambda: show.paused, True),
            ("3", lambda: app.chosen, "curves"),
            ("v", lambda: app.scene.symbols, "block"),
            ("?", lambda: len(app.screen_stack), 2),
            ("escape", lambda: len(app.screen_stack), 1),
        ):
            await pilot.press(key)
            assert looks() == found, key
        await pilot.press("?", "q")
    assert app.return_code == 0


async def test_play_at_the_end_begins_again() -> None:
    app = app_at(1.0)
    async with app.run_test() as pilot:
        await pilot.press("space", "space")
        assert (app.lockstep.paused, app.lockstep.played_s) == (False, 0.0)


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
    app = still(stepping(left, long_run("fixed", asdict(Fixed(depth=9)), 200, 700)), share)
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        scales, tokens = zip(*(axes(app, letter) for letter in versus.LETTERS), strict=True)
        assert scales[0] == scales[1]
        assert scales[0][0] == "10.0"
        newest = max(state.lane.committed for state in app.lockstep.states())
        first = max(0, newest - 512)
        assert tokens[0] == tokens[1] == [str(first), str(first + 512)]


async def test_it_survives_any_size_and_the_layout_is_that_of_the_new_one_at_once() -> None:
    app = app_at()
    async with app.run_test(size=(120, 40)) as pilot:
        for size in ((1, 1), (10, 3), (40, 10), (300, 80), (80, 24), (59, 200)):
            await pilot.resize_terminal(*size)
            app.tick()
        for size, classes in (((60, 14), {"flat"}), ((200, 60), {"wide"})):
            await pilot.resize_terminal(*size)
            assert app.screen.classes & {"wide", "flat"} == classes


class Shot(NamedTuple):
    size: tuple[int, int]
    view: View | None = None
    keys: Sequence[str] = ()


SHOTS = {
    **{f"{width}x{height}": Shot((width, height)) for width, height in (SMALL, FULL, (200, 60), (40, 10))},
    "tab 2 of a small terminal": Shot(SMALL, keys="2"),
    "tab 3 of a small terminal": Shot(SMALL, keys="3"),
    "without colour": Shot(FULL, View(color=False)),
    "in ascii": Shot(FULL, View(symbols="ascii")),
    "in a light theme": Shot(FULL, View(theme="textual-light")),
    "the help": Shot(SMALL, keys="?"),
}


@pytest.mark.parametrize("name", SHOTS)
def test_a_picture(name: str, snap_compare: Callable[..., bool]) -> None:
    shot = SHOTS[name]
    assert snap_compare(app_at(view=shot.view), press=shot.keys, terminal_size=shot.size)

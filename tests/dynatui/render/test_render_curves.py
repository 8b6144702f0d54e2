"""Charts drawn with dots, and the timeline with the round that a click on it selects."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.append_only import SharedList
from decoder.methods import all_knobs
from dynatui.render.curves import (
    LONGEST_WINDOW,
    Axis,
    CurveLine,
    Flag,
    Stroke,
    acceptance,
    chart,
    depth,
    looked_at,
    scale_of,
    trends,
    window,
)
from dynatui.render.ink import Rows
from dynatui.render.scene import Scale, Scene
from dynatui.render.status import round_at, timeline
from dynatui.session import Symbols
from dynatui.state.lane import Curve
from dynatui.state.run_state import Prompt
from dynatui.state.timeline import TimelinePosition
from tests.dynatui.compared_runs import compared
from tests.dynatui.render.golden import golden, inked
from tests.dynatui.scripted_runs import lines, run, running, state_of, story, tree_round
from tests.dynatui.turned_runs import turned

SYMBOLS: tuple[Symbols, ...] = ("braille", "block", "ascii")
STROKES: tuple[Stroke, ...] = ("solid", "dotted", "dashed", "sparse")


def curve_of(values: Sequence[float]) -> Curve:
    return Curve(SharedList(values), SharedList(range(1, len(values) + 1)))


def rising(count: int) -> CurveLine:
    return CurveLine(curve_of([number / (count - 1) for number in range(count)]), 0.0, 1.0, "first")


def flat(value: float) -> Curve:
    return curve_of([value] * 40)


EMPTY = CurveLine(Curve(), 0.0, 1.0, "second")
LEVEL = CurveLine(flat(0.5), 0.0, 1.0, "first")
BACK = Scene(
    state_of([Prompt(1, 2), *story()[:7]]),
    running().state,
    place=TimelinePosition(round=2, rounds=6, live=False),
)
CHAIN = structs.replace(run(("linear",)), methods={"linear": {"k": 5}})


def alone(line: CurveLine, axis: Axis, size: tuple[int, int], symbols: Symbols = "braille", *behind: CurveLine) -> Rows:
    return chart(line, EMPTY, behind, axis, size, symbols)


def decoded(rounds: int) -> Scene:
    return Scene(state_of([run(), *map(tree_round, range(rounds))]))


def test_a_new_point_changes_only_the_rows_at_the_pen() -> None:
    longer = rising(60)
    shorter = replace(longer, curve=curve_of(longer.curve.points[:-1]))
    pages = [alone(line, Axis(0, 256), (200, 8)) for line in (shorter, longer)]
    assert sum(a != b for a, b in zip(*pages, strict=True)) == 1


def test_the_window_holds_a_short_text_whole_and_rolls_through_a_long_one() -> None:
    assert [window(*text) for text in ((256, 0), (256, 256), (0, 0))] == [(0, 256), (0, 256), (0, 1)]
    newest = (100, LONGEST_WINDOW + 1, 9000)
    assert [window(10_000, tokens) for tokens in newest] == [
        (max(0, tokens - LONGEST_WINDOW), LONGEST_WINDOW) for tokens in newest
    ]


def test_series_differ_by_their_line() -> None:
    drawn = ["".join(lines(alone(replace(LEVEL, stroke=stroke), Axis(0, 40), (40, 4)))) for stroke in STROKES]
    assert len(set(drawn)) == len(STROKES)


@given(
    st.lists(st.floats(allow_nan=False), max_size=60),
    st.integers(0, 50),
    st.integers(0, 12),
    st.integers(-5, 10**9),
    st.sampled_from(SYMBOLS),
    st.none() | st.integers(-5, 10**9),
)
def test_any_series_fits_any_size(
    values: list[float], width: int, height: int, rounds: int, symbols: Symbols, cursor: int | None
) -> None:
    line = CurveLine(curve_of(values), 0.0, 1.0, "first")
    axis = Axis(rounds // 2, abs(rounds) + 1, [Flag(rounds, "x")], cursor)
    rows = lines(alone(line, axis, (width, height), symbols, line))
    assert [len(row) for row in rows] == [width] * height


def placed(number: int, rounds: int, *, live: bool = False) -> Scene:
    return replace(running(), place=TimelinePosition(number, rounds, 3.21, live=live))


def drawn(scene: Scene, width: int) -> str:
    return lines(timeline(scene, width, 1))[0]


@given(st.integers(0, 5000), st.integers(1, 5000), st.integers(24, 200))
def test_a_click_on_the_ball_asks_for_its_round(number: int, rounds: int, width: int) -> None:
    number = min(number, rounds)
    line = drawn(placed(number, rounds), width)
    cells = line.index("▶") - line.index("◀") - 1
    found = round_at(placed(number, rounds), width, line.index("●"))
    assert found is not None
    assert abs(found - number) <= rounds / max(1, cells - 1)


def test_the_ends_are_the_first_and_the_last_round_and_beside_it_is_nothing() -> None:
    scene = placed(42, 118)
    first, last = (drawn(scene, 120).index(end) for end in "◀▶")
    assert [round_at(scene, 120, x) for x in (first - 1, first, last, last + 1)] == [None, 0, 118, None]
    assert round_at(scene, 9, 3) is None


def test_the_line_does_not_move_while_the_numbers_grow() -> None:
    assert len({drawn(placed(n, n, live=True), 100).index("▶") for n in (1, 99, 100, 9999)}) == 1


test_golden = golden(
    {
        "flags point at their round and the last keeps its label": lambda: alone(
            EMPTY, Axis(0, 40, [Flag(0, "τh 0.90→0.80"), Flag(2, "D0 5→6"), Flag(20, "off")]), (60, 4)
        ),
        "trends fit on one line": lambda: (trends(running(), 80, 1), trends(Scene(), 20, 1)),
        "two charts side by side share their axes": lambda: acceptance(
            replace(running(), scale=scale_of(running()).joined(Scale(500, 20.0))), 76, 12
        ),
        "a line rises from corner to corner": lambda: [
            alone(rising(40), Axis(0, 40), (22, 4), symbols) for symbols in SYMBOLS
        ],
        "the panels name their lines and mark turned knobs": lambda: [
            acceptance(running(), 60, 8),
            depth(running(), 76, 8),
        ],
        "a method without knobs shows the depth that it drafts": lambda: depth(
            Scene(state_of([CHAIN, structs.replace(tree_round(0), method="linear", knobs=None)])), 76, 12
        ),
        "the curves of side a stand behind and are named": lambda: [
            inked(panel(Scene(state_of(compared())), 76, 12)) for panel in (acceptance, depth)
        ],
        "before the first round there is none to name": lambda: timeline(placed(0, 118), 120, 1),
        "it says where the picture is in shorter words where the terminal is narrow": lambda: [
            timeline(placed(118, 118, live=True), 120, 1),
            *(timeline(placed(42, 118), width, 1) for width in (120, 80, 40, 20)),
        ],
        "what was not played yet is ahead": lambda: [
            timeline(replace(running(), place=TimelinePosition(42, 118, 3.21, live=False, played=7)), width, 1)
            for width in (120, 80, 40)
        ],
        "the round that is looked at is a line from top to bottom": lambda: [
            inked(alone(rising(41), Axis(0, 40, cursor=20), (60, 6), symbols)) for symbols in SYMBOLS
        ],
        "what lies behind is drawn under the lines of the run": lambda: [
            inked(alone(LEVEL, Axis(0, 40), (60, 6), "ascii", CurveLine(flat(value), 0.0, 1.0, "ghost", "sparse")))
            for value in (0.5, 1.0)
        ],
        "looking back all charts show where and what comes later is dim": lambda: [
            [looked_at(scene), *(inked(panel(scene, 60, 10)) for panel in (acceptance, depth))]
            for scene in (BACK, Scene(BACK.state), running())
        ],
        "axes are those of the length limit and of the rules from the first round on": lambda: [
            panel(decoded(rounds), 76, 12) for panel in (acceptance, depth) for rounds in (1, 6, 18)
        ],
        "every knob has a marker of its own": lambda: [
            depth(Scene(state_of([run(), tree_round(0), turned(name, 1, 0.0, 1.0)])), 76, 12)[-2]
            for name in all_knobs()
        ],
        "turns of knobs are marked at their round": lambda: timeline(placed(6, 6, live=True), 80, 1),
    }
)

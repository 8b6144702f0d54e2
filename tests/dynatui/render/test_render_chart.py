"""Tests of charts drawn with dots."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.append_only import SharedList
from decoder.events import Knob
from decoder.methods import all_knobs
from dynatui.knobs import info
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
from dynatui.render.scene import Scale, Scene
from dynatui.screen.widgets.canvas import DrawPanel
from dynatui.session import Symbols
from dynatui.state.ab_comparison import Pin
from dynatui.state.lane import Curve
from dynatui.state.run_state import Prompt
from dynatui.state.timeline import TimelinePosition
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, run, running, state_of, story, text_of, tree_round


def curve_of(values: Sequence[float]) -> Curve:
    return Curve(SharedList(values), SharedList(range(1, len(values) + 1)))


def rising(count: int) -> Curve:
    return curve_of([number / (count - 1) for number in range(count)])


def flat(value: float, count: int = 40) -> Curve:
    return curve_of([value] * count)


EMPTY = CurveLine(Curve(), 0.0, 1.0, "second")


@pytest.mark.parametrize(
    ("symbols", "picture"),
    [
        ("braille", [" 1.0          ⢀⠔⠁ 1.0 ", "           ⣀⠔⠁        ", " 0.0    ⣀⡠⠊       0.0 "]),
        ("block", [" 1.0          ▄▀▀ 1.0 ", "           ▄▄▀        ", " 0.0    ▄▄▀       0.0 "]),
        ("ascii", [" 1.0           *** 1.0 ", "           ****        ", " 0.0   ***        0.0 "]),
    ],
)
def test_a_line_rises_from_corner_to_corner(symbols: Symbols, picture: list[str]) -> None:
    rows = lines(chart(CurveLine(rising(40), 0.0, 1.0, "first"), EMPTY, [], Axis(0, 40), (22, 4), symbols))
    assert len(rows) == 4
    assert rows[3].split() == ["0", "token", "40"]
    assert rows[0].startswith(" 1.0")
    assert rows[2].startswith(" 0.0")
    marks = [row[5:17].strip() for row in rows[:3]]
    assert all(marks), picture
    assert rows[0][5:17].rstrip() == rows[0][5:17], "the newest point is at the right edge"


def test_a_new_point_changes_only_the_rows_at_the_pen() -> None:
    axis, longer = Axis(0, 256), rising(60)
    shorter = curve_of(longer.points[:-1])
    pages = [
        chart(CurveLine(curve, 0.0, 1.0, "first"), EMPTY, [], axis, (200, 8), "braille") for curve in (shorter, longer)
    ]
    assert sum(a != b for a, b in zip(*pages, strict=True)) == 1


@pytest.mark.parametrize(("longest", "newest", "expected"), [(256, 0, (0, 256)), (256, 256, (0, 256)), (0, 0, (0, 1))])
def test_the_window_of_a_short_text_holds_all_of_it_from_the_beginning(
    longest: int, newest: int, expected: tuple[int, int]
) -> None:
    assert window(longest, newest) == expected


def test_a_long_text_rolls_through_a_window_of_one_size() -> None:
    newest = (0, 100, LONGEST_WINDOW, LONGEST_WINDOW + 1, 9000)
    assert [window(10_000, tokens) for tokens in newest] == [
        (max(0, tokens - LONGEST_WINDOW), LONGEST_WINDOW) for tokens in newest
    ]


def test_series_differ_by_their_line() -> None:
    strokes: tuple[Stroke, ...] = ("solid", "dotted", "dashed", "sparse")
    level = [CurveLine(flat(0.5), 0.0, 1.0, "first", stroke) for stroke in strokes]
    drawn = ["".join(lines(chart(line, EMPTY, [], Axis(0, 40), (40, 4), "braille"))) for line in level]
    assert len(set(drawn)) == len(strokes)


@given(
    st.lists(st.floats(allow_nan=False), max_size=60),
    st.integers(0, 50),
    st.integers(0, 12),
    st.integers(-5, 10**9),
    st.sampled_from(["braille", "block", "ascii"]),
    st.none() | st.integers(-5, 10**9),
)
def test_any_series_fits_any_size(
    values: list[float], width: int, height: int, rounds: int, symbols: Symbols, cursor: int | None
) -> None:
    line = CurveLine(curve_of(values), 0.0, 1.0, "first")
    axis = Axis(rounds // 2, abs(rounds) + 1, [Flag(rounds, "x")], cursor)
    rows = lines(chart(line, EMPTY, [line], axis, (width, height), symbols))
    assert [len(row) for row in rows] == [width] * height


def test_the_panels_name_their_lines_and_mark_turned_knobs() -> None:
    assert "Depth acceptance ━━  L-bar ┅┅ ─ last 3 rounds" in lines(acceptance(running(), 60, 8))[0]
    page = lines(depth(running(), 76, 8))
    assert "D0 ━━  τh ┅┅  τl ╍╍  drafted ╍╍ ─ ▲ your turns" in page[0]
    assert "▲τh 0.9→0.8" in page[-2]


@pytest.mark.parametrize("symbols", ["braille", "block", "ascii"])
def test_the_round_that_is_looked_at_is_a_line_from_top_to_bottom(symbols: Symbols) -> None:
    rows = chart(CurveLine(rising(41), 0.0, 1.0, "first"), EMPTY, [], Axis(0, 40, cursor=20), (60, 6), symbols)
    columns = {text_of(row).index("┊") for row in rows[:-1] if "┊" in text_of(row)}
    assert columns == {5 + round(20 / 40 * 49)}
    assert all(any(ink == "cursor" for _, ink in row) for row in rows[:-1])


def test_what_lies_behind_is_drawn_under_the_lines_of_the_run() -> None:
    level = CurveLine(flat(0.5), 0.0, 1.0, "first")
    ghost = CurveLine(flat(0.5), 0.0, 1.0, "ghost", "sparse")
    apart = CurveLine(flat(1.0), 0.0, 1.0, "ghost", "sparse")
    inks = {ink for row in chart(level, EMPTY, [ghost], Axis(0, 40), (60, 6), "ascii") for _, ink in row}
    assert "ghost" not in inks
    row = chart(level, EMPTY, [apart], Axis(0, 40), (60, 6), "ascii")[0]
    assert sum(text.count(".") for text, ink in row if ink == "ghost") == pytest.approx(50 / 3, abs=1)


@pytest.mark.parametrize("panel", [acceptance, depth])
def test_looking_back_all_charts_show_where(panel: DrawPanel) -> None:
    back = replace(running(), place=TimelinePosition(3, 6, live=False))
    assert any(ink == "cursor" for row in panel(back, 60, 10) for _, ink in row)
    assert not any(ink == "cursor" for row in panel(running(), 60, 10) for _, ink in row)
    past = back.state.lane.past
    assert looked_at(back) == past[-1].position


@pytest.mark.parametrize("panel", [acceptance, depth])
def test_what_comes_after_the_place_that_is_shown_is_drawn_dim(panel: DrawPanel) -> None:
    whole = running().state
    early = state_of([Prompt(1, 2), *story()[:7]])
    back = Scene(early, whole, place=TimelinePosition(2, 6, live=False))
    dim = [text for row in panel(back, 60, 10) for text, ink in row if ink == "ghost"]
    assert any(text.strip() for text in dim)
    assert any("▲" in text for text in dim)
    assert not [ink for row in panel(Scene(early), 60, 10) for _, ink in row if ink == "ghost"]


@pytest.mark.parametrize("panel", [acceptance, depth])
def test_a_pinned_curve_stands_behind_and_is_named(panel: DrawPanel) -> None:
    earlier = state_of([run(), *(tree_round(number, d0=2.0, tau_h=0.6) for number in range(20))])
    page = panel(replace(running(), pinned=Pin.of(earlier, "dynatree")), 76, 12)
    assert "  A ┄┄" in text_of(page[0])
    assert any(ink == "ghost" for row in page[1:] for text, ink in row if text.strip())


def test_the_axis_is_that_of_the_length_limit_from_the_first_round_on() -> None:
    for rounds in (1, 6, 18):
        scene = Scene(state_of([run(), *(tree_round(number) for number in range(rounds))]))
        assert "token 64" in lines(acceptance(scene, 76, 12))[-2]


def test_the_scales_are_those_of_the_rules_whatever_the_figures_are() -> None:
    few, many = (state_of([run(), *(tree_round(number) for number in range(count))]) for count in (1, 18))
    for panel in (acceptance, depth):
        first, last = (lines(panel(Scene(state), 76, 12)) for state in (few, many))
        assert [row[:6] + row[-7:] for row in first] == [row[:6] + row[-7:] for row in last]


def test_a_method_without_knobs_shows_the_depth_that_it_drafts() -> None:
    chain = structs.replace(run(("linear",)), methods={"linear": {"k": 5}})
    event = structs.replace(tree_round(0), method="linear", knobs=None)
    page = lines(depth(Scene(state_of([chain, event])), 76, 12))
    assert "Depth drafted" in page[0]
    assert "D0" not in page[0]


def test_every_knob_has_a_marker_of_its_own() -> None:
    for name in all_knobs():
        turn = structs.replace(Knob(method="dynatree", round=1, name="d0", old=0.0, new=1.0, source="user"), name=name)
        page = "\n".join(lines(depth(Scene(state_of([run(), tree_round(0), turn])), 76, 12)))
        old, new = (info(name).written(value) for value in (0.0, 1.0))
        written = "history on" if name == "history" else f"{info(name).symbol} {old}→{new}"
        assert f"▲{written}" in page


test_golden = golden(
    {
        "flags point at their round and the last keeps its label": lambda: chart(
            EMPTY,
            EMPTY,
            [],
            Axis(0, 40, [Flag(0, "τh 0.90→0.80"), Flag(2, "D0 5→6"), Flag(20, "off")]),
            (60, 4),
            "braille",
        ),
        "trends fit on one line": lambda: (trends(running(), 80, 1), trends(Scene(), 20, 1)),
        "two charts side by side share their axes": lambda: acceptance(
            replace(running(), scale=scale_of(running()).joined(Scale(500, 20.0))), 76, 12
        ),
    }
)

"""Charts of dots."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Knob
from decoder.knobs import KNOBS
from dynatui.fold.pin import Pin
from dynatui.fold.state import Curve
from dynatui.knobs import info
from dynatui.render.chart import Axis, Flag, Line, chart, span_for
from dynatui.render.curves import acceptance, depth, looked_at, trends
from dynatui.render.ink import text_of
from dynatui.render.scene import Place, Scene
from dynatui.screen.widgets.canvas import Painter
from dynatui.session import Symbols
from tests.dynatui.render.scripted import lines, run, running, state_of, tree_round


def rising(count: int) -> Curve:
    """A straight line from 0 to 1."""
    return Curve(tuple(number / (count - 1) for number in range(count)))


EMPTY = Line(Curve(), 0.0, 1.0, "second")


@pytest.mark.parametrize(
    ("symbols", "picture"),
    [
        ("braille", [" 1.0          ⢀⠔⠁ 1.0 ", "           ⣀⠔⠁        ", "  .0    ⣀⡠⠊       .0  "]),
        ("block", [" 1.0          ▄▀▀ 1.0 ", "           ▄▄▀        ", "  .0    ▄▄▀       .0  "]),
        ("ascii", [" 1.0           *** 1.0 ", "           ****        ", "  .0   ***        .0  "]),
    ],
)
def test_a_line_rises_from_corner_to_corner(symbols: Symbols, picture: list[str]) -> None:
    rows = lines(chart(Line(rising(40), 0.0, 1.0, "first"), EMPTY, [], Axis(40), (22, 4), symbols))
    assert len(rows) == 4
    assert rows[3].split() == ["0", "round", "40"]
    assert rows[0].startswith(" 1.0")
    assert rows[2].startswith("  .0")
    marks = [row[5:17].strip() for row in rows[:3]]
    assert all(marks), picture
    assert rows[0][5:17].rstrip() == rows[0][5:17], "the newest point is at the right edge"


def test_the_axis_grows_in_steps_so_that_old_points_stand_still() -> None:
    assert [span_for(rounds) for rounds in (0, 40, 41, 61, 81, 121, 161)] == [40, 40, 60, 80, 120, 160, 240]
    short_run = chart(Line(rising(41), 0.0, 1.0, "first"), EMPTY, [], Axis(41), (60, 6), "braille")
    longer = Curve((*rising(41).points, 1.0, 1.0))
    long_run = chart(Line(longer, 0.0, 1.0, "first"), EMPTY, [], Axis(43), (60, 6), "braille")
    assert sum(a != b for a, b in zip(short_run, long_run, strict=True)) == 1


def test_series_differ_by_their_line() -> None:
    flat = Curve((0.5,) * 40)
    solid = lines(chart(Line(flat, 0.0, 1.0, "first"), EMPTY, [], Axis(40), (40, 4), "braille"))
    dotted = lines(chart(Line(flat, 0.0, 1.0, "first", stroke="dotted"), EMPTY, [], Axis(40), (40, 4), "braille"))
    assert solid != dotted


def test_flags_point_at_their_round_and_the_last_keeps_its_label() -> None:
    flags = [Flag(0, "τh .90→.80"), Flag(2, "D0 5→6"), Flag(20, "off")]
    row = lines(chart(EMPTY, EMPTY, [], Axis(40, flags), (60, 4), "braille"))[-1]
    assert row.startswith("     ▲ ▲D0 5→6")
    assert row[5 + round(20 / 40 * 49)] == "▲"
    assert "▲off" in row


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
    line = Line(Curve(tuple(values)), 0.0, 1.0, "first")
    rows = lines(chart(line, EMPTY, [line], Axis(rounds, [Flag(rounds, "x")], cursor), (width, height), symbols))
    assert [len(row) for row in rows] == [width] * height


def test_the_panels_name_their_lines_and_mark_turned_knobs() -> None:
    assert "Acceptance ━━  tokens/round ┅┅ ─ mean of 3 rounds" in lines(acceptance(running(), 60, 8))[0]
    page = lines(depth(running(), 60, 8))
    assert "D0 base depth ━━  τh sure from ┅┅ ─ ▲ your turns" in page[0]
    assert "▲τh .9→.8" in page[-2]


def test_trends_fit_on_one_line() -> None:
    row = lines(trends(running(), 80, 1))
    assert len(row[0]) == 80
    assert all(name in row[0] for name in ("acceptance", "tokens/round", "D0"))
    assert len(lines(trends(Scene(), 20, 1))[0]) == 20


@pytest.mark.parametrize("symbols", ["braille", "block", "ascii"])
def test_the_round_that_is_looked_at_is_a_line_from_top_to_bottom(symbols: Symbols) -> None:
    rows = chart(Line(rising(41), 0.0, 1.0, "first"), EMPTY, [], Axis(40, cursor=20), (60, 6), symbols)
    columns = {text_of(row).index("┊") for row in rows[:-1] if "┊" in text_of(row)}
    assert columns == {5 + round(20 / 40 * 49)}
    assert all(any(ink == "cursor" for _, ink in row) for row in rows[:-1])


def test_what_lies_behind_is_drawn_under_the_lines_of_the_run() -> None:
    flat = Line(Curve((0.5,) * 40), 0.0, 1.0, "first")
    ghost = Line(Curve((0.5,) * 40), 0.0, 1.0, "ghost", "sparse")
    apart = Line(Curve((1.0,) * 40), 0.0, 1.0, "ghost", "sparse")
    inks = {ink for row in chart(flat, EMPTY, [ghost], Axis(40), (60, 6), "ascii") for _, ink in row}
    assert "ghost" not in inks
    row = chart(flat, EMPTY, [apart], Axis(40), (60, 6), "ascii")[0]
    assert sum(text.count(".") for text, ink in row if ink == "ghost") == pytest.approx(50 / 3, abs=1)


@pytest.mark.parametrize("panel", [acceptance, depth])
def test_looking_back_all_charts_show_where(panel: Painter) -> None:
    back = replace(running(), place=Place(3, 6, live=False))
    assert any(ink == "cursor" for row in panel(back, 60, 10) for _, ink in row)
    assert not any(ink == "cursor" for row in panel(running(), 60, 10) for _, ink in row)
    assert looked_at(back) == 2
    assert looked_at(replace(back, cursor=4)) == running().state.tokens[4].round


@pytest.mark.parametrize("panel", [acceptance, depth])
def test_a_pinned_curve_stands_behind_and_is_named(panel: Painter) -> None:
    pinned = Pin.of(state_of([run(), *(tree_round(number, d0=2.0, tau_h=0.6) for number in range(30))]))
    page = panel(replace(running(), pinned=pinned), 76, 12)
    assert "A as pinned" in text_of(page[0])
    assert any(ink == "ghost" for row in page[1:] for text, ink in row if text.strip())


def test_a_recording_is_drawn_on_an_axis_that_holds_all_of_it() -> None:
    assert "round 120" in "\n".join(lines(acceptance(replace(running(), place=Place(6, 118)), 76, 12)))


def test_every_knob_has_a_marker_of_its_own() -> None:
    for name in KNOBS:
        turn = structs.replace(Knob(method="dynatree", round=1, name="d0", old=1.0, new=2.0, source="user"), name=name)
        page = "\n".join(lines(depth(Scene(state_of([run(), tree_round(0), turn])), 76, 12)))
        written = "history on" if name == "history" else f"{info(name).symbol} 1→2"
        assert f"▲{written}" in page

"""Charts of dots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynatui.render.chart import Axis, Flag, Line, chart, span_for
from dynatui.render.curves import acceptance, depth, trends
from dynatui.render.scene import Scene
from dynatui.session import Symbols
from dynatui.state import Curve
from tests.dynatui.render.scripted import lines, running


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

"""Line charts of dots: a grid of cells, each with 2 x 4 dots in braille, 1 x 2 in blocks, one in ASCII.

The x axis spans the whole run and grows in steps, so that a new point changes only the rows at the pen. Two series
differ by their line (solid, dotted) as well as by ink.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dynatui.fold.state import Curve
from dynatui.render.ink import Ink, Row, Rows, Span, fit, merged, share, short
from dynatui.session import Symbols

_GRIDS: dict[Symbols, tuple[int, int]] = {"braille": (2, 4), "block": (1, 2), "ascii": (1, 1)}
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLOCKS = " ▀▄█"
_AXIS = 5
_FIRST_SPAN = 40


Stroke: TypeAlias = Literal["solid", "dotted", "sparse"]
"""Two series differ by it as well as by ink; sparse are those that lie behind, of an earlier measurement."""
_DRAWN: dict[Stroke, tuple[bool, bool, bool]] = {
    "solid": (True, True, True),
    "dotted": (True, True, False),
    "sparse": (True, False, False),
}


@dataclass(frozen=True)
class Line:
    """One series and its scale."""

    curve: Curve
    low: float
    high: float
    ink: Ink
    stroke: Stroke = "solid"
    digits: int = 1


@dataclass(frozen=True)
class Flag:
    """A round that is pointed at, and why."""

    round: int
    label: str


def span_for(rounds: int) -> int:
    """Rounds that the x axis spans: the next of 40, 60, 80, 120, 160, 240, …"""
    span = _FIRST_SPAN
    while span < rounds:
        span = span * 3 // 2 if (span // _FIRST_SPAN).bit_count() == 1 and span % _FIRST_SPAN == 0 else span * 4 // 3
    return span


@dataclass(frozen=True)
class Axis:
    """The rounds that a chart shows, and what is pointed at."""

    rounds: int
    flags: Sequence[Flag] = ()
    cursor: int | None = None
    """The round that is looked at."""


def chart(left: Line, right: Line, behind: Sequence[Line], axis: Axis, size: tuple[int, int], symbols: Symbols) -> Rows:
    """Both series over the rounds of the run, those behind them, scales at either side, flags below."""
    width, height = size
    plot = (width - 2 * _AXIS, height - 1)
    if plot[0] < _AXIS or plot[1] < 1:
        return [fit((), width) for _ in range(height)]
    span = span_for(axis.rounds)
    cursor = None if axis.cursor is None else _column(axis.cursor, span, plot[0])
    cells = _draw((*behind, right, left), span, plot, cursor, symbols)
    rows: Rows = []
    for y in range(plot[1]):
        rows.append(
            (
                (f"{_tick(left, y, plot[1]):>4} ", left.ink),
                *cells[y],
                (f" {_tick(right, y, plot[1]):<4}", right.ink),
            )
        )
    rows.append(_flags(axis.flags, span, width))
    return rows


def _column(number: int, span: int, width: int) -> int:
    """The column of a round."""
    return round(share(number, span) * (width - 1))


def _tick(line: Line, y: int, height: int) -> str:
    places = {0: line.high, height - 1: line.low}
    if height % 2:
        places[height // 2] = (line.high + line.low) / 2
    return short(places[y], line.digits) if y in places else ""


def _draw(lines: Sequence[Line], span: int, plot: tuple[int, int], cursor: int | None, symbols: Symbols) -> Rows:
    width, height = plot
    across, down = _GRIDS[symbols]
    dots: dict[tuple[int, int], int] = {}
    inks: dict[tuple[int, int], Ink] = {}
    for line in lines:
        for x, y in _pen(line, span, width * across, height * down):
            cell = (x // across, y // down)
            dots[cell] = dots.get(cell, 0) | _dot(x % across, y % down, symbols, faint=line.stroke != "solid")
            inks[cell] = line.ink
    rows: Rows = []
    for y in range(height):
        cells: list[Span] = [(_glyph(dots.get((x, y), 0), symbols), inks.get((x, y), "plain")) for x in range(width)]
        if cursor is not None:
            drawn = cells[cursor][0]
            cells[cursor] = ("┊" if drawn == " " else drawn, "cursor")
        rows.append(merged(cells))
    return rows


def _pen(line: Line, span: int, columns: int, rows: int) -> list[tuple[int, int]]:
    """Every dot of a series, neighbours joined by upright strokes."""
    points, stride = line.curve.points, line.curve.stride
    dots, last = list[tuple[int, int]](), -1
    for x in range(columns):
        index = int(x * span / columns / stride)
        if index >= len(points):
            break
        y = round((1 - share(points[index] - line.low, line.high - line.low)) * (rows - 1))
        low, high = (y, y) if last < 0 else (min(y, last + (y > last)), max(y, last - (y < last)))
        last = y
        if _DRAWN[line.stroke][x % 3]:
            dots.extend((x, row) for row in range(low, high + 1))
    return dots


def _dot(x: int, y: int, symbols: Symbols, *, faint: bool) -> int:
    match symbols:
        case "braille":
            return _BRAILLE[x][y]
        case "block":
            return y + 1
        case "ascii":
            return 1 if faint else 2


def _glyph(dots: int, symbols: Symbols) -> str:
    match symbols:
        case "braille":
            return chr(0x2800 + dots) if dots else " "
        case "block":
            return _BLOCKS[dots]
        case "ascii":
            return " .**"[dots]


def _flags(flags: Sequence[Flag], span: int, width: int) -> Row:
    """The axis' ends, with a pointer at each flag; a label where the next pointer leaves room."""
    plot = width - 2 * _AXIS
    marked = [" "] * width
    places = [(_AXIS + _column(flag.round, span, plot), flag) for flag in flags]
    for index, (x, flag) in enumerate(places):
        text = f"▲{flag.label}"
        end = places[index + 1][0] if index + 1 < len(places) else width
        if x + len(text) >= end:
            text = text[:1]
        marked[x : x + len(text)] = text
    cells: list[tuple[str, Ink]] = [(mark, "warn") for mark in marked[:width]]
    for label, x in (("0", _AXIS), (f"round {span}", _AXIS + plot - len(f"round {span}"))):
        if all(mark == " " for mark in marked[max(0, x - 1) : x + len(label) + 1]):
            cells[x : x + len(label)] = [(character, "dim") for character in label]
    return merged(cells)

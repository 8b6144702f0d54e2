"""Line charts of dots in a grid of cells; a cell has 2 x 4 dots in braille, 1 x 2 dots in blocks, one dot in ASCII.

The x axis counts tokens of the text. The range of tokens that is shown (the window) and the scales keep their size for
a whole run, so that a new point changes only a few cells. The window moves once the text is longer than the window.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dynatui.number_format import short
from dynatui.render.ink import Ink, Row, Rows, Span, fit, joined, merged, share
from dynatui.session import Symbols
from dynatui.state.lane import Curve

LONGEST_WINDOW = 512
"""In tokens; of a longer text, the newest are shown."""
_AXIS = 5


@dataclass(frozen=True)
class _Grid:
    bits: tuple[tuple[int, ...], ...]
    """Bit of each dot, by column and row; the sum of the bits is the index into `signs`."""
    signs: str
    faint: int = 0
    """Bit that is set for every dot of a line that is not solid. If it is 0, the dot's own bit in `bits` is set."""


_GRIDS: dict[Symbols, _Grid] = {
    "braille": _Grid(((1, 2, 4, 64), (8, 16, 32, 128)), " " + "".join(map(chr, range(0x2801, 0x2900)))),
    "block": _Grid(((1, 2),), " ▀▄█"),
    "ascii": _Grid(((2,),), " .**", faint=1),
}
Stroke: TypeAlias = Literal["solid", "dotted", "dashed", "sparse"]
"""Line style, by which series differ even without colour; only the pinned measurement A has the style `sparse`."""
_SIGNS: dict[Stroke, str] = {"solid": "━━", "dotted": "┅┅", "dashed": "╍╍", "sparse": "┄┄"}
_DASHES: dict[Stroke, tuple[bool, ...]] = {
    "solid": (True,) * 6,
    "dotted": (True, True, False) * 2,
    "dashed": (True, True, True, True, False, False),
    "sparse": (True, False, False) * 2,
}


@dataclass(frozen=True)
class Line:
    curve: Curve
    low: float
    high: float
    ink: Ink
    stroke: Stroke = "solid"
    digits: int = 1


@dataclass(frozen=True)
class Flag:
    token: int
    label: str
    ink: Ink = "warn"


@dataclass(frozen=True)
class Axis:
    first: int
    span: int
    flags: Sequence[Flag] = ()
    cursor: int | None = None
    unit: str = "token"


def legend(lines: Sequence[Line], names: Sequence[str]) -> Row:
    parts: list[Row] = [
        ((f"  {name}", "title"), (f" {_SIGNS[line.stroke]}", line.ink)) for name, line in zip(names, lines, strict=True)
    ]
    return ((names[0], "title"), parts[0][1], *joined(parts[1:], ()))


def window(longest: int, newest: int) -> tuple[int, int]:
    """First token and length. The text now has `newest` tokens, and may grow to `longest`."""
    span = min(LONGEST_WINDOW, max(1, longest))
    return max(0, newest - span), span


def chart(
    left: Line, right: Line, background: Sequence[Line], axis: Axis, size: tuple[int, int], symbols: Symbols
) -> Rows:
    """`left` and `right` have scales; `background` is behind them."""
    width, height = size
    plot = (width - 2 * _AXIS, height - 1)
    if plot[0] < _AXIS or plot[1] < 1:
        return [fit((), width) for _ in range(height)]
    cells = _draw((*background, right, left), axis, plot, symbols)
    rows: Rows = []
    for y, row in enumerate(cells):
        scales = (f"{_tick(left, y, plot[1]):>4} ", left.ink), (f" {_tick(right, y, plot[1]):<4}", right.ink)
        rows.append((scales[0], *row, scales[1]))
    rows.append(_flags(axis, width))
    return rows


def _column(token: int, axis: Axis, width: int) -> int | None:
    inside = 0 <= token - axis.first <= axis.span
    return round(share(token - axis.first, axis.span) * (width - 1)) if inside else None


def _tick(line: Line, y: int, height: int) -> str:
    places = {0: line.high, height - 1: line.low}
    if height % 2:
        places[height // 2] = (line.high + line.low) / 2
    return short(places[y], line.digits) if y in places else ""


def _draw(lines: Sequence[Line], axis: Axis, plot: tuple[int, int], symbols: Symbols) -> Rows:
    width, height = plot
    grid = _GRIDS[symbols]
    across, down = len(grid.bits), len(grid.bits[0])
    dots: dict[tuple[int, int], int] = {}
    inks: dict[tuple[int, int], Ink] = {}
    for line in lines:
        for x, y in _pen(line, axis, width * across, height * down):
            cell, dot = (x // across, y // down), grid.bits[x % across][y % down]
            dots[cell] = dots.get(cell, 0) | (grid.faint or dot if line.stroke != "solid" else dot)
            inks[cell] = line.ink
    cursor = None if axis.cursor is None else _column(axis.cursor, axis, width)
    rows: Rows = []
    for y in range(height):
        cells: list[Span] = [(grid.signs[dots.get((x, y), 0)], inks.get((x, y), "plain")) for x in range(width)]
        if cursor is not None:
            sign = cells[cursor][0]
            cells[cursor] = ("┊" if sign == " " else sign, "cursor")
        rows.append(merged(cells))
    return rows


def _pen(line: Line, axis: Axis, columns: int, rows: int) -> list[tuple[int, int]]:
    """Vertical strokes join neighbouring dots; NaN leaves a gap."""
    points, ends = line.curve.points[:], line.curve.ends[:]
    dots, last, dashes = list[tuple[int, int]](), -1, _DASHES[line.stroke]
    for x in range(columns):
        index = bisect_right(ends, axis.first + x * axis.span / columns)
        if index >= len(points):
            break
        if math.isnan(points[index]):
            last = -1
            continue
        y = round((1 - share(points[index] - line.low, line.high - line.low)) * (rows - 1))
        low, high = (y, y) if last < 0 else (min(y, last + (y > last)), max(y, last - (y < last)))
        last = y
        if dashes[x % len(dashes)]:
            dots.extend((x, row) for row in range(low, high + 1))
    return dots


def _flags(axis: Axis, width: int) -> Row:
    plot = width - 2 * _AXIS
    cells: list[Span] = [(" ", "plain")] * width
    marks = [(_column(flag.token, axis, plot), flag) for flag in axis.flags]
    places = [(_AXIS + column, flag) for column, flag in marks if column is not None]
    for index, (x, flag) in enumerate(places):
        text = f"▲{flag.label}"
        end = places[index + 1][0] if index + 1 < len(places) else width
        if x + len(text) >= end:
            text = text[:1]
        cells[x : x + len(text)] = [(sign, flag.ink) for sign in text]
    cells = cells[:width]
    last = f"{axis.unit} {axis.first + axis.span}"
    for label, x in ((str(axis.first), _AXIS), (last, _AXIS + plot - len(last))):
        if x >= 0 and all(sign == " " for sign, _ in cells[max(0, x - 1) : x + len(label) + 1]):
            cells[x : x + len(label)] = [(character, "dim") for character in label]
    return merged(cells)

"""Line charts of dots over the tokens of the text; scales follow from the knobs' limits, so they seldom change."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from decoder.append_only import SharedList
from decoder.tree_rules import tree_rule
from dynatui.knobs import rules_in_force
from dynatui.number_format import short
from dynatui.render.ink import Ink, Row, Rows, Span, best_row, fit, frame, inside, joined, merged, share, trend
from dynatui.render.scene import Scale, Scene
from dynatui.render.words import turned
from dynatui.session import Symbols
from dynatui.state.ab_comparison import side_a
from dynatui.state.lane import Curve

LONGEST_WINDOW = 512
"""Maximum length of the x axis, in tokens; of a longer text, only the newest tokens are shown."""
_AXIS = 5


@dataclass(frozen=True)
class _Grid:
    bits: tuple[tuple[int, ...], ...]
    """Bit of each dot of a cell, by column and row; the sum of the set bits is the index into `signs`."""
    signs: str
    faint: int = 0
    """Bit that every dot of a line that is not solid sets; if 0, each dot sets its own bit."""


_GRIDS: dict[Symbols, _Grid] = {
    "braille": _Grid(((1, 2, 4, 64), (8, 16, 32, 128)), " " + "".join(map(chr, range(0x2801, 0x2900)))),
    "block": _Grid(((1, 2),), " ▀▄█"),
    "ascii": _Grid(((2,),), " .**", faint=1),
}
Stroke: TypeAlias = Literal["solid", "dotted", "dashed", "sparse"]
"""Line style, by which series differ even without colour; `sparse` marks side A of a comparison and break-even."""
_SIGNS: dict[Stroke, str] = {"solid": "━━", "dotted": "┅┅", "dashed": "╍╍", "sparse": "┄┄"}
_DASHES: dict[Stroke, tuple[bool, ...]] = {
    "solid": (True,) * 6,
    "dotted": (True, True, False) * 2,
    "dashed": (True, True, True, True, False, False),
    "sparse": (True, False, False) * 2,
}


@dataclass(frozen=True)
class CurveLine:
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
    written: Callable[[int], str] = str


def legend(lines: Sequence[CurveLine], names: Sequence[str]) -> Row:
    row: Row = ()
    for name, line in zip(names, lines, strict=True):
        row = (*row, (f"{'  ' if row else ''}{name}", "title"), (f" {_SIGNS[line.stroke]}", line.ink))
    return row


def window(longest: int, newest: int) -> tuple[int, int]:
    """First token and length of the x axis for a text that has `newest` tokens and may grow to `longest`."""
    span = min(LONGEST_WINDOW, max(1, longest))
    return max(0, newest - span), span


def chart(
    left: CurveLine,
    right: CurveLine,
    background: Sequence[CurveLine],
    axis: Axis,
    size: tuple[int, int],
    symbols: Symbols,
) -> Rows:
    """Rows of a line chart. `left` and `right` have scales at the sides; lines in `background` are behind them."""
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


def _tick(line: CurveLine, y: int, height: int) -> str:
    places = {0: line.high, height - 1: line.low}
    if height % 2:
        places[height // 2] = (line.high + line.low) / 2
    return short(places[y], line.digits) if y in places else ""


def _draw(lines: Sequence[CurveLine], axis: Axis, plot: tuple[int, int], symbols: Symbols) -> Rows:
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


def _pen(line: CurveLine, axis: Axis, columns: int, rows: int) -> list[tuple[int, int]]:
    """The dots of a line: vertical strokes join neighbouring dots, and NaN leaves a gap."""
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
    last = f"{axis.unit} {axis.written(axis.first + axis.span)}"
    for label, x in ((axis.written(axis.first), _AXIS), (last, _AXIS + plot - len(last))):
        if x >= 0 and all(sign == " " for sign, _ in cells[max(0, x - 1) : x + len(label) + 1]):
            cells[x : x + len(label)] = [(character, "dim") for character in label]
    return merged(cells)


def scale_of(scene: Scene) -> Scale:
    """Upper ends of the axes; two recordings that are shown side by side have equal ends."""
    if scene.scale is not None:
        return scene.scale
    run = scene.state.run
    return Scale(run.max_new_tokens if run else 1, deepest(scene), scene.state.lane.committed)


def deepest(scene: Scene) -> float:
    """The largest depth that the rules allow, in levels; if the rules are unknown, the newest drafted depth."""
    rule = tree_rule(rules_in_force(scene.state))
    if rule is not None:
        return float(rule.growth.deepest)
    return max((curve.points[-1] for curve in (scene.state.lane.curves.depth,) if curve.points), default=1.0)


def acceptance(scene: Scene, width: int, height: int) -> Rows:
    curves = scene.state.lane.curves
    left = CurveLine(curves.acceptance, 0.0, 1.0, "first")
    right = CurveLine(curves.tokens, 1.0, scale_of(scene).top, "second", "dotted")
    ghosts = _ghosts(scene, acceptance=left, tokens=right)
    long = ("Depth acceptance", "tokens/round"), f"{_window_words(scene)} rounds"
    title = _title(scene, width, (left, right), long, (("Depth acc.", "L-bar"), _window_words(scene)))
    return _framed(scene, title, (left, right, *ghosts), (width, height), labelled=False)


def depth(scene: Scene, width: int, height: int) -> Rows:
    curves, scale_end = scene.state.lane.curves, scale_of(scene).deepest
    drafted = CurveLine(curves.depth, 0.0, scale_end, "third", "dashed", digits=0)
    if not curves.d0.points:
        title = _title(scene, width, (drafted,), (("Depth drafted",), _window_words(scene)))
        empty = CurveLine(Curve(), 0.0, scale_end, "third", digits=0)
        lines = drafted, empty, *_ghosts(scene, depth=drafted)
        return _framed(scene, title, lines, (width, height), labelled=True)
    left = CurveLine(curves.d0, 0.0, scale_end, "first", digits=0)
    right = CurveLine(curves.tau_h, 0.0, 1.0, "second", "dotted")
    low = CurveLine(curves.tau_l, 0.0, 1.0, "plain", "dashed")
    ghosts = _ghosts(scene, d0=left, tau_h=right, tau_l=low, depth=drafted)
    long, brief = ("D0 base depth", "τh sure from", "τl unsure below", "depth drafted"), ("D0", "τh", "τl", "drafted")
    note = "▲ your turns"
    title = _title(scene, width, (left, right, low, drafted), (long, note), (brief, note))
    return _framed(scene, title, (left, right, *ghosts, low, drafted), (width, height), labelled=True)


def trends(scene: Scene, width: int, _height: int) -> Rows:
    curves, scale, head = scene.state.lane.curves, scale_of(scene), f" {_window_words(scene)}: "
    room = max(0, (width - 36 - len(head)) // 3)
    parts: list[Row] = [
        ((f"{head}depth acc. ", "dim"), (trend(curves.acceptance.points, room, 0.0, 1.0), "first")),
        (("L-bar ", "dim"), (trend(curves.tokens.points, room, 1.0, scale.top), "second")),
        (("depth ", "dim"), (trend(curves.depth.points, room, 0.0, scale.deepest), "third")),
    ]
    return [fit(joined(parts, (("  ", "plain"),)), width)]


def _window_words(scene: Scene) -> str:
    return f"last {scene.state.lane.window}"


def looked_at(scene: Scene) -> int | None:
    """Index of the first token of the shown round; None while the view follows the newest round."""
    newest = scene.state.lane.newest
    return None if scene.place.live or newest is None else newest.position


def _title(scene: Scene, width: int, lines: Sequence[CurveLine], *wordings: tuple[Sequence[str], str]) -> Row:
    a: Row = (("  A", "title"), (" ┄┄", "ghost")) if side_a(scene.state, scene.state.watched) else ()
    pairs: list[tuple[Row, Row]] = [(legend(lines, names), ((f" ─ {note}", "dim"),)) for names, note in wordings]
    rows: list[Row] = [(*named, *ghost, *note) for ghost in (a, ()) for named, note in pairs]
    return best_row(max(0, width - 6), *rows, pairs[-1][0], pairs[-1][0][:2])


def _framed(scene: Scene, title: Row, lines: tuple[CurveLine, ...], size: tuple[int, int], *, labelled: bool) -> Rows:
    end, scale = scene.state.lane.committed, scale_of(scene)
    flags = [
        Flag(mark.token, turned(mark) if labelled else "", "warn" if mark.token <= end else "ghost")
        for mark in scene.newest_state.lane.marks
    ]
    axis = Axis(*window(scale.tokens, scale.newest), flags, looked_at(scene))
    left, right, *background = lines
    return frame(title, chart(left, right, background, axis, inside(size), scene.symbols), size)


def _ghosts(scene: Scene, **lines: CurveLine) -> list[CurveLine]:
    """Faint lines: curves of side A, and curves after the shown round; the names in `lines` are fields of `Curves`."""
    a = side_a(scene.state, scene.state.watched)
    ghosts = [
        CurveLine(getattr(a.curves, name), line.low, line.high, "ghost", "sparse") for name, line in lines.items() if a
    ]
    return [*ghosts, *(later for name, line in lines.items() for later in _later(scene, line, name))]


def _later(scene: Scene, line: CurveLine, name: str) -> list[CurveLine]:
    end = scene.state.lane.committed
    whole: Curve = getattr(scene.newest_state.lane.curves, name)
    first = bisect_right(whole.ends[:], end)
    if scene.whole is None or first == len(whole.points):
        return []
    points, ends = SharedList([math.nan, *whole.points[first:]]), SharedList([end, *whole.ends[first:]])
    return [replace(line, curve=Curve(points, ends), ink="ghost")]

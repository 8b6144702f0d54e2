"""Rows of styled text; every panel is made of such rows.

A row is a tuple of spans; a span is a text and the name of its ink. Rows compare by value, so the screen redraws only
changed rows, and tests can read rows as text. `dynatui.render.palette` defines the look of each ink.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Literal, TypeAlias

from rich.cells import cell_len, set_cell_size

Ink = Literal[
    "plain", "dim", "strong", "frame", "title", "accepted", "bonus", "prompt", "first", "second", "third",
    "good", "warn", "bad", "key", "tab", "logo", "bar", "ghost", "cursor",
    "heat1", "heat2", "heat3", "heat4", "heat5", "band", "caret", "hit",
]  # fmt: skip
Span: TypeAlias = tuple[str, Ink]
Row: TypeAlias = tuple[Span, ...]
Rows: TypeAlias = list[Row]

_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII = str.maketrans("╭─╮│╰╯├▏▎▍▌▋▊▉▁▂▃▄▅▆▇█━┅●○▲…·←→τ␣⏎∅", "+-+|`+||  |###__..==##=:*o^~.<>t_/0")
_ASCII |= str.maketrans("▒▀◆◇✓✗", "+'Ll+x")
_ASCII |= str.maketrans("↑↓◀▶┼┬┊┄╍ρη▸", "^v<>++:.-rn>")
_MIN_FRAME = (8, 4)
DOT: Row = ((" · ", "dim"),)


def width_of(row: Row) -> int:
    return sum(cell_len(text) for text, _ in row)


def fit(row: Row, width: int) -> Row:
    """Exactly `width` cells: cut or filled."""
    room, spans = max(0, width), list[Span]()
    for text, ink in row:
        cells = cell_len(text)
        if cells > room:
            spans.append((set_cell_size(text, room), ink))
            return tuple(spans)
        spans.append((text, ink))
        room -= cells
    return (*spans, (" " * room, "plain")) if room else tuple(spans)


def shortened(row: Row, width: int) -> Row:
    room, spans = width, list[Span]()
    for text, ink in row:
        spans.append((text, ink) if cell_len(text) <= room else (column(text, room), ink))
        room -= cell_len(text)
        if room < 0:
            break
    return tuple(spans)


def column(text: str, width: int) -> str:
    """Exactly `width` cells: cut with an ellipsis, or filled with blanks."""
    if width > 1 and cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, max(0, width))


def best(width: int, *texts: str) -> str:
    """The first wording that fits; else the last one, cut with an ellipsis."""
    return next((text for text in texts if cell_len(text) <= width), column(texts[-1], width))


def best_row(width: int, *rows: Row) -> Row:
    """The first wording that fits; else the last one."""
    return next((row for row in rows if width_of(row) <= width), rows[-1])


def fitting(parts: Iterable[Row], width: int) -> Row:
    """The first parts, as many as fit whole."""
    row: Row = ()
    for part in parts:
        if row and width_of(row) + width_of(part) > width:
            break
        row = (*row, *part)
    return fit(row, width)


def joined(parts: Iterable[Row], separator: Row) -> Row:
    row: Row = ()
    for part in parts:
        row = (*row, *separator, *part) if row else part
    return row


def merged(cells: Iterable[Span]) -> Row:
    return tuple(("".join(map(itemgetter(0), run)), ink) for ink, run in groupby(cells, key=itemgetter(1)))


def frame(title: Row, body: Sequence[Row], size: tuple[int, int]) -> Rows:
    """Without room for the box, the body alone."""
    width, height = size
    if width < _MIN_FRAME[0] or height < _MIN_FRAME[1]:
        return [fit(row, width) for row in [*body, *[()] * height][: max(0, height)]]
    room = width - 6
    head = shortened(title, room)
    rule = "─" * (room - width_of(head) + 1)
    rows: Rows = [(("╭─ ", "frame"), *head, (f" {rule}╮", "frame"))]
    inner = width - 4
    for row in [*body, *[()] * height][: height - 2]:
        rows.append((("│ ", "frame"), *fit(row, inner), (" │", "frame")))
    rows.append((("╰" + "─" * (width - 2) + "╯", "frame"),))
    return rows


def inside(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the body within a `frame`."""
    width, height = size
    small = width < _MIN_FRAME[0] or height < _MIN_FRAME[1]
    return (width, height) if small else (width - 4, height - 2)


def share(part: float, whole: float) -> float:
    """`part / whole`, clipped to [0, 1], since recordings may contain any numbers."""
    ratio = part / whole if whole > 0 else 0.0
    return min(1.0, max(0.0, ratio)) if math.isfinite(ratio) else 0.0


def bar(filled: float, width: int) -> str:
    """`filled` is a share, from 0 to 1."""
    eighths = round(filled * width * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(width)


def trend(values: Sequence[float], width: int, low: float, high: float) -> str:
    """The newest values as a sparkline."""
    tail = values[-width:] if width > 0 else ()
    return "".join(_LEVELS[round(share(value - low, high - low) * (len(_LEVELS) - 1))] for value in tail)


def in_ascii(rows: Rows) -> Rows:
    return [tuple((text.translate(_ASCII), ink) for text, ink in row) for row in rows]

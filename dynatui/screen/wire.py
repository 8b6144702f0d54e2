"""Encodes the changes of the screen in few bytes for the terminal: Textual would send several times as many.

Widths are those of `rich.cells`; a row with characters wider than one cell is sent whole. Independent of widgets.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.strip import Strip

from dynatui.render.ink import Ink, Row

_ONE_CELL_WIDE = re.compile(
    "[ -~\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027\u2190-\u22ff\u23ce\u2400-\u2426\u2500-\u25fc\u2800-\u28ff]*"
)
SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronised output: terminals that support it display all output between these two sequences at once."""
_NEAR = 4
"""Up to this many unchanged cells between two changes are sent again: moving the cursor would take as many bytes."""
_OFF = {1: 22, 2: 22, 3: 23, 4: 24, 5: 25, 7: 27, 8: 28, 9: 29}
"""SGR code of an attribute -> SGR code that ends it; bold and dim end with the same code."""
_REVERSE = 7
_SHOWN_ON_BLANKS = frozenset({4, 9})


@dataclass(frozen=True, eq=False)
class CellStyle:
    """Attributes and colours of a cell. Equal styles are the same object, so that comparison is fast."""

    attributes: frozenset[int]
    foreground: str
    background: str

    @cached_property
    def of_blanks(self) -> "CellStyle":
        """The part of the style that is visible on a blank."""
        if _REVERSE in self.attributes:
            return self  # a reversed blank shows the foreground colour, which bold may brighten
        return _one_look(self.attributes & _SHOWN_ON_BLANKS, "39", self.background)


_one_look = cache(CellStyle)
RESET = _one_look(frozenset(), "39", "49")
Looks: TypeAlias = tuple[tuple[str, CellStyle], ...]
"""A row, as parts of text with their styles."""
Cell: TypeAlias = tuple[str | Looks, CellStyle | int]
"""(character, style); in a row with characters wider than one cell, (whole row, index of the cell in it)."""


@lru_cache(maxsize=1024)
def cell_style(style: Style, colors: ColorSystem) -> CellStyle:
    flags = {
        1: style.bold,
        2: style.dim,
        3: style.italic,
        4: style.underline,
        5: style.blink,
        _REVERSE: style.reverse,
        8: style.conceal,
        9: style.strike,
    }
    front, back = style.color, style.bgcolor
    return _one_look(
        frozenset(code for code, on in flags.items() if on),
        ";".join(front.downgrade(colors).get_ansi_codes()) if front else RESET.foreground,
        ";".join(back.downgrade(colors).get_ansi_codes(foreground=False)) if back else RESET.background,
    )


@cache
def style_change(before: CellStyle, after: CellStyle) -> tuple[str, bool]:
    """SGR codes that change one style to another, and whether the difference shows on blanks."""
    ends = {_OFF[code] for code in before.attributes - after.attributes}
    unchanged = {code for code in before.attributes if _OFF[code] not in ends}
    codes = [str(code) for code in (*sorted(ends), *sorted(after.attributes - unchanged))]
    codes += [after.foreground] if after.foreground != before.foreground else []
    codes += [after.background] if after.background != before.background else []
    if after is RESET:
        codes = [""] if codes else []
    return f"\x1b[{';'.join(codes)}m" if codes else "", before.of_blanks is not after.of_blanks


def in_looks(row: Row, looks: Mapping[Ink, CellStyle]) -> Looks:
    return tuple((text, looks.get(ink, RESET)) for text, ink in row if text)


def parts(update: ChopsUpdate | LayoutUpdate, colors: ColorSystem) -> Iterator[tuple[int, int, Looks]]:
    """The parts of the screen that Textual would send, each as (column, line, content)."""
    if isinstance(update, LayoutUpdate):
        for y, line in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in line:
                yield x, y, _strip_looks(strip, colors)
                x += strip.cell_length
        return
    for y, left, right in update.spans:
        for end, (x, chop) in zip(update.chop_ends[y], update.chops[y].items(), strict=True):
            if chop is not None and x < right and end > left:
                yield x, y, _strip_looks(chop.crop(0, min(end, right) - x), colors)


def _strip_looks(strip: Strip, colors: ColorSystem) -> Looks:
    shown = (segment for segment in strip if segment.text and not segment.control)
    return tuple((segment.text, cell_style(segment.style or Style.null(), colors)) for segment in shown)


class Shown:
    """The cells that the terminal shows after all frames so far; None for unknown cells."""

    def __init__(self, size: tuple[int, int], *, erases: bool = False) -> None:
        """`erases`: whether the terminal fills erased cells with the present background colour."""
        self.width, self.height = size
        self.erases = erases
        self.rows: list[list[Cell | None]] = [[None] * self.width for _ in range(self.height)]


class Frame:
    """Changes of the shown cells as one text. Cells of one style are written together, wherever they are, since moving
    the cursor takes fewer bytes than changing colours.
    """

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._pieces = list[str]()
        self._runs = dict[CellStyle, list[tuple[int, int, Looks]]]()
        """(line, column, content) of each change, by the first style of the content."""
        self._look = RESET

    def clear(self, look: CellStyle) -> None:
        """Fills the screen with blanks of this style, or with plain blanks if the terminal cannot erase in colours."""
        blank = look.of_blanks if self._shown.erases else RESET
        self._pieces.append(style_change(self._look, blank)[0] or "\x1b[m")
        self._look = blank
        self._pieces.append("\x1b[2J")
        self._shown.rows = [[(" ", blank)] * self._shown.width for _ in range(self._shown.height)]

    def put(self, row: Looks, column: int, line: int) -> None:
        """Writes a row into `line` from `column` on, both counted from 0; a frame may write each cell only once."""
        if line >= self._shown.height:
            return
        after = _cells(row)[: max(0, self._shown.width - column)]
        shown = self._shown.rows[line]
        for start, end in _changes(shown[column : column + len(after)], after):
            if isinstance(after[0][0], tuple):  # a row that is sent whole
                self._add(line, column, row)
            else:
                for at, text, look in self._segments(after[start:end]):
                    self._add(line, column + start + at, ((text, look),))
        shown[column : column + len(after)] = after

    def text(self) -> str:
        self._write_runs()
        return "".join([*self._pieces, style_change(self._look, RESET)[0]])

    def _segments(self, cells: Sequence[Cell]) -> Iterator[tuple[int, str, CellStyle]]:
        """(offset, text, style) of each run of cells of one style; blanks that look the same in it join the run."""
        start, text, part_look = 0, "", RESET
        for look, run in groupby(cells, key=itemgetter(1)):
            added = "".join(map(itemgetter(0), run))
            joins = look.of_blanks is part_look.of_blanks and (added.isspace() or text.isspace())
            if text and not joins:
                yield start, text, part_look
                start, text = start + len(text), ""
            part_look = part_look if text and added.isspace() else look
            text += added
        yield start, text, part_look

    def _add(self, line: int, column: int, row: Looks) -> None:
        self._runs.setdefault(row[0][1], []).append((line, column, row))

    def _write_runs(self) -> None:
        cursor: tuple[int, int] | None = None
        for runs in self._runs.values():
            for line, column, row in runs:
                self._pieces.append(_move(cursor, line, column))
                cursor = line, column
                for text, look in row:
                    self._turn(look, blank=text.isspace())
                    self._pieces.append(text)
                    cursor = line, cursor[1] + cell_len(text)

    def _turn(self, look: CellStyle, *, blank: bool) -> None:
        if look is not self._look:
            codes, shows_on_blanks = style_change(self._look, look)
            if shows_on_blanks or not blank:
                self._pieces.append(codes)
                self._look = look


def _move(cursor: tuple[int, int] | None, line: int, column: int) -> str:
    if cursor == (line, column):
        return ""
    if cursor and line == cursor[0] and column > cursor[1]:
        return f"\x1b[{column - cursor[1]}C"
    return f"\x1b[{line + 1};{column + 1}H"


def _cells(row: Looks) -> list[Cell]:
    text = "".join(map(itemgetter(0), row))
    if not (text.isascii() or _ONE_CELL_WIDE.fullmatch(text)):
        return [(row, place) for place in range(sum(cell_len(part) for part, _ in row))]
    cells = list[Cell]()
    for part, look in row:
        blank: Cell = (" ", look.of_blanks)
        cells += [blank if sign == " " else (sign, look) for sign in part]
    return cells


def _changes(before: Sequence[Cell | None], after: Sequence[Cell]) -> Iterator[tuple[int, int]]:
    """(first column, column after the last) of each part of `after` that differs from `before`."""
    start = end = -1
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old == new:
            continue
        if place - end > _NEAR and end >= 0:
            yield start, end
            start = place
        elif end < 0:
            start = place
        end = place + 1
    if end >= 0:
        yield start, end

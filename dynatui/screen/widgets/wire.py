"""Writes changed rows to the terminal in few bytes: Textual would send several times as many.

Widths are those of `rich.cells`; a row with characters wider than one cell is sent whole. Knows no widgets.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import TypeAlias

from rich.color import ColorSystem
from rich.style import Style

from dynatui.render.ink import Ink, Row, merged

Cell: TypeAlias = tuple[str, Ink]

_ONE_CELL_WIDE = re.compile(
    "[ -~\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027\u2190-\u22ff\u23ce\u2400-\u2426\u2500-\u25fc\u2800-\u28ff]*"
)
SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronised output: terminals that support it display all output between these two sequences at once."""
_NEAR = 4
"""Up to this many unchanged cells between two changes are sent again, since moving the cursor takes as many bytes."""
_WORTH_SCROLLING = 3
"""Least number of rows that scrolling must save."""
_OFF = {1: 22, 2: 22, 3: 23, 4: 24, 5: 25, 7: 27, 8: 28, 9: 29}
"""The SGR code that ends each attribute; bold and dim have the same code."""
_REVERSE = 7
_SHOWN_ON_BLANKS = frozenset({4, _REVERSE, 9})


@dataclass(frozen=True, eq=False)
class CellStyle:
    """Equal looks are one object, so that comparison is fast."""

    attributes: frozenset[int]
    foreground: str
    background: str

    @property
    def of_blanks(self) -> tuple[object, ...]:
        """The part of the style that is visible on a blank."""
        front = self.foreground if _REVERSE in self.attributes else ""
        return front, self.background, self.attributes & _SHOWN_ON_BLANKS


_one_look = cache(CellStyle)
RESET = _one_look(frozenset(), "39", "49")


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
    """SGR codes from one look to another, and whether the difference shows on blanks."""
    ends = {_OFF[code] for code in before.attributes - after.attributes}
    unchanged = {code for code in before.attributes if _OFF[code] not in ends}
    codes = [str(code) for code in (*sorted(ends), *sorted(after.attributes - unchanged))]
    codes += [after.foreground] if after.foreground != before.foreground else []
    codes += [after.background] if after.background != before.background else []
    if after is RESET:
        codes = [""] if codes else []
    return f"\x1b[{';'.join(codes)}m" if codes else "", before.of_blanks != after.of_blanks


@dataclass(frozen=True)
class Cells:
    row: Row
    cells: list[Cell] | None
    """Character and ink of each cell; None if any character of the row is not one cell wide."""

    @property
    def is_blank(self) -> bool:
        return self.cells is not None and all(sign == " " for sign, _ in self.cells)


NOTHING = Cells((), None)


def cells(row: Row) -> Cells:
    text = "".join(map(itemgetter(0), row))
    plain = text.isascii() or _ONE_CELL_WIDE.fullmatch(text)
    return Cells(row, [(sign, ink) for part, ink in row for sign in part] if plain else None)


class Frame:
    """A look stays set from one row to the next."""

    def __init__(self) -> None:
        self._pieces = list[str]()
        self._look = RESET

    def patch(self, looks: Mapping[Ink, CellStyle], before: Cells, after: Cells, column: int, line: int) -> None:
        """Changes a row of the terminal from `before` to `after`, of equal width; column and line count from 0."""
        pieces, at = self._pieces, -1
        for start, run in changes(before, after):
            pieces.append(f"\x1b[{start - at}C" if at >= 0 else f"\x1b[{line + 1};{column + start + 1}H")
            at = start
            for text, ink in run:
                new = looks.get(ink, RESET)
                if new is not self._look:
                    codes, shows_on_blanks = style_change(self._look, new)
                    if shows_on_blanks or not text.isspace():
                        pieces.append(codes)
                        self._look = new
                pieces.append(text)
                at += len(text)

    def scroll(self, top: int, bottom: int, rows: int) -> None:
        """The last lines become undefined."""
        self._pieces.append(f"\x1b[{top + 1};{bottom + 1}r\x1b[{bottom + 1};1H" + "\n" * rows + "\x1b[r")

    def text(self) -> str:
        return "".join([*self._pieces, style_change(self._look, RESET)[0]])


def scrolled(before: Sequence[Cells], after: Sequence[Cells]) -> int:
    """Number of rows by which contents have moved up from `before` to `after`; 0 if scrolling saves too few rows."""
    for rows in range(1, len(after)):
        same = sum(old.row == new.row and not new.is_blank for old, new in zip(before[rows:], after, strict=False))
        if same >= _WORTH_SCROLLING:
            return rows
    return 0


def changes(before: Cells, after: Cells) -> Iterator[tuple[int, Row]]:
    """Parts of `after` that differ, each with its first column."""
    old, new = before.cells, after.cells
    if old is None or new is None:
        if before.row != after.row:
            yield 0, after.row
        return
    start = end = -1
    for place, (a, b) in enumerate(zip(old, new, strict=True)):
        if a == b:
            continue
        if place - end > _NEAR and end >= 0:
            yield start, merged(new[start:end])
            start = place
        elif end < 0:
            start = place
        end = place + 1
    if end >= 0:
        yield start, merged(new[start:end])

"""What changed of a row, told to a terminal in as few bytes as it takes.

Textual sends whole regions again and opens and closes the style of every span. Over a thin line a frame of this
program then costs several times what it says, so panels that nothing covers are patched cell by cell. Pure: knows
neither widgets nor where the bytes go. Widths are those of `rich.cells`; a row whose signs are not all one cell wide is
sent whole.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from rich.color import ColorSystem
from rich.style import Style

from dynatui.render.ink import Ink, Row

Cell: TypeAlias = tuple[str, Ink]

_ONE_CELL_WIDE = re.compile(
    "[ -~\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027\u2190-\u22ff\u23ce\u2400-\u2426\u2500-\u25fc\u2800-\u28ff]*"
)
_NEAR = 4
"""A move to the right costs this many bytes; so many unchanged cells may as well be sent again."""
_OFF = {1: 22, 2: 22, 3: 23, 4: 24, 5: 25, 7: 27, 8: 28, 9: 29}
"""The code that ends each attribute; bold and dim share one."""
_SHOWN_ON_BLANKS = frozenset({4, 7, 9})


@dataclass(frozen=True)
class Look:
    """A style as terminals know it."""

    attributes: frozenset[int]
    foreground: str
    background: str

    @property
    def of_blanks(self) -> "tuple[str, frozenset[int]] | Look":
        """All of it that a blank shows."""
        return self if 7 in self.attributes else (self.background, self.attributes & _SHOWN_ON_BLANKS)

    def after(self, before: "Look") -> str:
        """The codes that turn `before` into this look."""
        ends = {_OFF[code] for code in before.attributes - self.attributes}
        codes = [str(code) for code in sorted(ends)]
        kept = before.attributes - {code for code in before.attributes if _OFF[code] in ends}
        codes += [str(code) for code in sorted(self.attributes - kept)]
        codes += [self.foreground] if self.foreground != before.foreground else []
        codes += [self.background] if self.background != before.background else []
        return f"\x1b[{';'.join(codes)}m" if codes else ""


RESET = Look(frozenset(), "39", "49")
"""How every patch finds the terminal and leaves it."""


def look(style: Style, colors: ColorSystem) -> Look:
    """How a style looks on a terminal with so many colours."""
    flags = {
        1: style.bold,
        2: style.dim,
        3: style.italic,
        4: style.underline,
        5: style.blink,
        7: style.reverse,
        8: style.conceal,
        9: style.strike,
    }
    front, back = style.color, style.bgcolor
    return Look(
        frozenset(code for code, on in flags.items() if on),
        ";".join(front.downgrade(colors).get_ansi_codes()) if front else "39",
        ";".join(back.downgrade(colors).get_ansi_codes(foreground=False)) if back else "49",
    )


@dataclass(frozen=True)
class Turn:
    """From one ink to another."""

    codes: str
    shows_on_blanks: bool


@dataclass(frozen=True)
class Cells:
    """A row as the terminal holds it."""

    row: Row
    cells: list[Cell] | None
    """A sign and its ink each; None where not every sign is one cell wide."""


def cells(row: Row) -> Cells:
    """The row, taken apart if it can be."""
    text = "".join(map(itemgetter(0), row))
    plain = text.isascii() or _ONE_CELL_WIDE.fullmatch(text)
    return Cells(row, [(sign, ink) for part, ink in row for sign in part] if plain else None)


@dataclass(frozen=True)
class Pen:
    """Writes rows in the looks of one panel."""

    looks: Mapping[Ink, Look]
    _turns: dict[tuple[Ink | None, Ink | None], Turn] = field(default_factory=dict)
    """Worked out once; None is how a patch finds the terminal and leaves it."""

    def patch(self, before: Cells, after: Cells, column: int, line: int) -> str:
        """Makes a terminal row of `before` one of `after`; both fill the same width, from a place counted from 0."""
        pieces = list[str]()
        at, used = 0, None
        for start, run in changes(before, after):
            pieces.append(f"\x1b[{start - at}C" if pieces else f"\x1b[{line + 1};{column + start + 1}H")
            at = start
            for text, ink in run:
                if ink != used:
                    turn = self._turns.get((used, ink)) or self._turn(used, ink)
                    if turn.shows_on_blanks or not text.isspace():
                        pieces.append(turn.codes)
                        used = ink
                pieces.append(text)
                at += len(text)
        if used is not None:
            pieces.append(self._turn(used, None).codes)
        return "".join(pieces)

    def _turn(self, used: Ink | None, ink: Ink | None) -> Turn:
        before, after = (self.looks.get(one, RESET) if one else RESET for one in (used, ink))
        codes = "\x1b[m" if after == RESET != before else after.after(before)
        return self._turns.setdefault((used, ink), Turn(codes, before.of_blanks != after.of_blanks))


def changes(before: Cells, after: Cells) -> Iterator[tuple[int, Row]]:
    """The parts of `after` that differ from `before`, each with the column where it begins."""
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
            yield start, _row(new[start:end])
            start = place
        elif end < 0:
            start = place
        end = place + 1
    if end >= 0:
        yield start, _row(new[start:end])


def _row(part: list[Cell]) -> Row:
    return tuple(("".join(map(itemgetter(0), group)), ink) for ink, group in groupby(part, key=itemgetter(1)))

"""Rows of styled text, of which every panel is made: cutting, joining, frames, wrapped text, columns of figures."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Generic, Literal, TypeAlias, TypeVar

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
ASCII = str.maketrans("╭─╮│╰╯├▏▎▍▌▋▊▉▁▂▃▄▅▆▇█━┅●○▲…·←→τ␣⏎∅", "+-+|`+||  |###__..==##=:*o^~.<>t_/0")
ASCII |= str.maketrans("▒▀◆◇✓✗", "+'Ll+x")
ASCII |= str.maketrans("↑↓◀▶┼┬┊┄╍ρη▸", "^v<>++:.-rn>")
_MIN_FRAME = (8, 4)
T = TypeVar("T")
DOT: Row = ((" · ", "dim"),)


def width_of(row: Row) -> int:
    return sum(cell_len(text) for text, _ in row)


def fit(row: Row, width: int) -> Row:
    """The row, cut or filled with blanks to exactly `width` cells."""
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
    """The text, cut with an ellipsis or filled with blanks to exactly `width` cells."""
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
    """As many of the first parts as fit whole; if the very first part does not fit, it is cut."""
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
    """The body in a box with the title, or the body alone if the box does not fit."""
    width, height = size
    if width < _MIN_FRAME[0] or height < _MIN_FRAME[1]:
        return [fit(row, width) for row in [*body, *[()] * height][: max(0, height)]]
    head = shortened(title, width - 6)
    top: Row = (("╭─ ", "frame"), *head, (f" {'─' * (width - 5 - width_of(head))}╮", "frame"))
    rows = [*body, *[()] * height][: height - 2]
    inner: Rows = [(("│ ", "frame"), *fit(row, width - 4), (" │", "frame")) for row in rows]
    return [top, *inner, ((f"╰{'─' * (width - 2)}╯", "frame"),)]


def inside(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the body within a `frame`."""
    width, height = size
    small = width < _MIN_FRAME[0] or height < _MIN_FRAME[1]
    return (width, height) if small else (width - 4, height - 2)


def titled(name: str, words: str = "", ink: Ink = "dim") -> Row:
    return ((name, "title"), (words and f" ─ {words}", ink))


def framed(draw: Callable[[T, int, int], tuple[Row, Sequence[Row]]]) -> Callable[[T, int, int], Rows]:
    """A panel from the title and the body that `draw` gives for the room within the frame, in cells and rows."""

    @wraps(draw)
    def panel(shown: T, width: int, height: int) -> Rows:
        return frame(*draw(shown, *inside((width, height))), (width, height))

    return panel


def share(part: float, whole: float) -> float:
    """`part / whole`, clipped to [0, 1], since recordings may contain any numbers."""
    ratio = part / whole if whole > 0 else 0.0
    return min(1.0, max(0.0, ratio)) if math.isfinite(ratio) else 0.0


def bar(filled: float, width: int) -> str:
    """A bar in `width` cells, filled to a share from 0 to 1 in steps of an eighth of a cell."""
    eighths = round(filled * width * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(width)


def trend(values: Sequence[float], width: int, low: float, high: float) -> str:
    """The newest values as a sparkline of at most `width` cells."""
    tail = values[-width:] if width > 0 else ()
    return "".join(_LEVELS[round(share(value - low, high - low) * (len(_LEVELS) - 1))] for value in tail)


def in_ascii(rows: Rows) -> Rows:
    return [tuple((text.translate(ASCII), ink) for text, ink in row) for row in rows]


@dataclass(frozen=True)
class Column(Generic[T]):
    head: str
    cells: int
    value: Callable[[T], str]
    rank: int = 0
    """A narrow table omits the columns with the largest ranks first; of equal ranks, the last columns first."""


class Sheet(Generic[T]):
    def __init__(self, columns: Sequence[Column[T]], room: int) -> None:
        ranked = sorted(columns, key=lambda column: column.rank)
        ends = accumulate(column.cells for column in ranked)
        fitting = [column for column, end in zip(ranked, ends, strict=True) if end <= room]
        self.columns = [column for column in columns if column in fitting]
        self.cells = sum(column.cells for column in fitting)
        self.heads = "".join(f"{column.head:>{column.cells}}" for column in self.columns)

    def row(self, one: T) -> str:
        return "".join(f"{column.value(one):>{column.cells}}" for column in self.columns)


Tag = TypeVar("Tag")
Line: TypeAlias = list[tuple[str, Tag]]

_PIECES = re.compile(r"\n| +|[^ \n]+")


class Flow(Generic[Tag]):
    """Wraps text; only words longer than a line are split. Empty texts, line ends and cut blanks become empty spans."""

    def __init__(self, width: int) -> None:
        self.width = max(1, width)
        self.lines: list[Line[Tag]] = [[]]
        self._used = 0

    def add(self, text: str, tag: Tag) -> None:
        for piece in _PIECES.findall(text) or ("",):
            if piece == "\n":
                self.lines[-1].append(("", tag))
                self._close()
            elif is_gap(piece):
                self._gap(piece, tag)
            else:
                self._word(piece, tag)

    def _gap(self, gap: str, tag: Tag) -> None:
        while len(gap) > self.width - self._used:
            room = max(0, self.width - self._used)
            self.lines[-1].append((gap[:room], tag))
            self._close()
            gap = gap[room + 1 :]
        self._append(gap, tag)

    def _word(self, word: str, tag: Tag) -> None:
        if self._fitting(word) < len(word):
            self._move_last_word_down()
        while (cut := self._fitting(word)) < len(word):
            if cut == 0 and self._used == 0:
                cut = 1
            self._append(word[:cut], tag)
            self._close()
            word = word[cut:]
        self._append(word, tag)

    def _fitting(self, word: str) -> int:
        cells = self._used
        for place, character in enumerate(word):
            cells += cell_len(character)
            if cells > self.width:
                return place
        return len(word)

    def _move_last_word_down(self) -> None:
        line = self.lines[-1]
        cut = next((i + 1 for i in range(len(line) - 1, -1, -1) if is_gap(line[i][0])), 0)
        if cut:
            self.lines[-1], moved = line[:cut], line[cut:]
            self._close()
            for text, tag in moved:
                self._append(text, tag)

    def _append(self, text: str, tag: Tag) -> None:
        self.lines[-1].append((text, tag))
        self._used += cell_len(text)

    def _close(self) -> None:
        self.lines.append([])
        self._used = 0


def inked(line: Line[Tag], ink_of: Callable[[str, Tag], Ink]) -> Row:
    return merged((text, ink_of(text, tag)) for text, tag in line if text)


def is_gap(text: str) -> bool:
    """Whether the text consists of blanks between words; such blanks are not underlined."""
    return text.startswith(" ")


def wrapped(row: Sequence[Span], width: int, gaps: Ink | None = None) -> Rows:
    """A long row wrapped to several rows; blanks between words get the ink `gaps`, if given."""
    flow = Flow[Ink](width)
    for text, ink in row:
        flow.add(text, ink)
    return [inked(line, lambda text, ink: gaps if gaps and is_gap(text) else ink) for line in flow.lines]

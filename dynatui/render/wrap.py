"""Wraps a growing text into lines of tagged spans.

A new token changes only the last line, so a token costs no more in a long text than in a short text. Knows no inks: a
tag gets an ink when a page is displayed, so that a change of colours needs no new wrapping.
"""

import re
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from rich.cells import cell_len

from dynatui.render.ink import Ink, Row, Rows, Span, merged

Tag = TypeVar("Tag")
Line: TypeAlias = list[tuple[str, Tag]]

_PIECES = re.compile(r"\n| +|[^ \n]+")


class Flow(Generic[Tag]):
    """Only words longer than a line are split. A text of width 0 (empty, a line end, a blank without room) is an empty
    span.
    """

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
        """Number of leading characters of a word that still fit in the line."""
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
    """Gaps are not underlined."""
    return text.startswith(" ")


def wrapped(row: Sequence[Span], width: int, gaps: Ink | None = None) -> Rows:
    """A long row wrapped to several rows; blanks between words get the ink `gaps`, if given."""
    flow = Flow[Ink](width)
    for text, ink in row:
        flow.add(text, ink)
    return [inked(line, lambda text, ink: gaps if gaps and is_gap(text) else ink) for line in flow.lines]

"""Reads JSON objects from a text that may be larger than memory: JSON lines, consecutive objects, or one array.

Independent of the objects' fields.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from decoder.errors import first_line

LONGEST = 16 * 2**20
"""Largest length of an object in characters, so that an endless text cannot fill the memory."""
_BLANKS = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


class MalformedError(ValueError):
    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class Window:
    """The part of a text that is in memory. It begins at the text's first unread character, and grows on demand."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self.text = ""
        self.at = 0
        """Index in `text` of the first unread character."""
        self.line = 1
        """Line number of the first unread character."""
        self._chunks = chunks

    def grow(self) -> bool:
        """Doubles the unread text; False at the text's end, or if the unread text is longer than `LONGEST`."""
        unread = [self.text[self.at :]]
        wanted = 2 * len(unread[0]) or 1
        if wanted > 2 * LONGEST:
            return False
        while wanted > sum(map(len, unread)) and (chunk := next(self._chunks, "")):
            unread.append(chunk)
        self.text, self.at = "".join(unread), 0
        return len(unread) > 1

    def read_to(self, at: int) -> None:
        """Marks the text before the index `at` as read."""
        self.line += self.text.count("\n", self.at, at)
        self.at = at

    def next_character(self) -> str:
        """Marks blanks as read, and returns the character after them; empty at the end of the text."""
        blanks = 0
        while True:
            match = _BLANKS.match(self.text, self.at)
            end = match.end() if match else self.at
            blanks += end - self.at
            self.read_to(end)
            if end < len(self.text):
                return self.text[end]
            if blanks > LONGEST:
                raise MalformedError(self.line, f"more than {LONGEST >> 20} MiB of blanks precede it")
            if not self.grow():
                return ""

    def skip_line(self) -> None:
        """Marks the rest of the current line as read, as far as it is in memory."""
        end = self.text.find("\n", self.at)
        self.read_to(end + 1 if end >= 0 else len(self.text))


def objects(window: Window) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields each object with the number of the line on which it begins; raises MalformedError for anything else."""
    in_array = window.next_character() == "["
    if in_array:
        window.read_to(window.at + 1)
    while (following := window.next_character()) and not (in_array and following == "]"):
        line = window.line
        value, end = value_at(window, line if not in_array else None)
        if not isinstance(value, dict):
            raise MalformedError(line, f"it holds {_kind(value)} in place of an object")
        window.read_to(end)
        yield line, value
        if in_array and window.next_character() == ",":
            window.read_to(window.at + 1)
        elif in_array and window.next_character() != "]":
            raise MalformedError(window.line, "',' or ']' is missing after an object")
    if in_array:
        if not following:
            raise MalformedError(window.line, "the array's end is missing")
        window.read_to(window.at + 1)
        if window.next_character():
            raise MalformedError(window.line, "text follows after the array")


def value_at(window: Window, line: int | None = None) -> tuple[Any, int]:
    """The JSON value at the window's first unread character, and the index after it.

    Raises MalformedError with the line number `line` or, if `line` is None, with the line number of the fault.
    """
    while True:
        try:
            return _decoder.raw_decode(window.text, window.at)
        except (ValueError, RecursionError) as error:
            fault, why = window.at, first_line(error)
            if isinstance(error, json.JSONDecodeError):
                fault, why = error.pos, error.msg
            lines = window.text.count("\n", window.at, fault)
            if window.grow():
                continue
            if len(window.text) - window.at > LONGEST:
                lines, why = 0, f"the object is longer than {LONGEST >> 20} MiB, which is longer than any context"
            raise MalformedError(line or window.line + lines, why) from None


def _kind(value: object) -> str:
    match value:
        case str():
            return "a text"
        case list():
            return "a list"
        case bool() | None:
            return json.dumps(value)
    return "a number"

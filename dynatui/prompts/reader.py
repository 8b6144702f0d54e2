"""Reads prompt files: text in chunks of bounded size, and JSON objects from these chunks.

Files are plain or gzip, in UTF-8 or in the encoding of a byte order mark. Chunks are bounded, so that a small gzip file
with a very long text does not fill the memory. JSON: lines, consecutive objects or one array, whatever their fields.
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from decoder.errors import PromptError, first_line

CHUNK = 2**20
"""Size of a chunk in bytes."""
_GZIP = b"\x1f\x8b"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is the beginning of this one
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def text_chunks(file: BinaryIO, shown: str) -> Iterator[str]:
    """Text of a file in chunks, without its byte order mark; newlines are left as they are.

    Raises PromptError, which names the file `shown`, if the file is not text or is a damaged gzip file.
    """
    pieces = _unpacked(file, shown)
    first = next(pieces, b"")
    mark, encoding = next((each for each in _MARKS if first.startswith(each[0])), (b"", "utf-8"))
    decoder, fed, line = codecs.getincrementaldecoder(encoding)(), len(mark), 1
    piece = first.removeprefix(mark)
    while True:
        fed += len(piece)
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            bad, begin = error.object, error.start
            line += bad[:begin].decode(encoding, "ignore").count("\n")
            raise PromptError(
                f"{shown} is not {encoding.upper()} text (line {line}, byte {fed - len(bad) + begin + 1}); convert it, "
                "with iconv for example"
            ) from None
        line += text.count("\n")
        if text:
            yield text
        if not piece:
            return
        piece = next(pieces, b"")


def _unpacked(file: BinaryIO, shown: str) -> Iterator[bytes]:
    begun = _Begun(file)
    source = gzip.GzipFile(fileobj=cast("Any", begun)) if begun.head.startswith(_GZIP) else begun
    try:
        while piece := source.read(CHUNK):
            yield piece
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise PromptError(f"{shown} is a damaged gzip file ({error}); make or download it again") from None


class _Begun:
    """A file whose first bytes are already read. It is never read after its end: a terminal would wait for input."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.head = file.read(CHUNK)
        self._ended = len(self.head) < CHUNK

    def read(self, size: int) -> bytes:
        if self.head:
            taken, self.head = self.head[:size], self.head[size:]
            return taken
        piece = b"" if self._ended else self._file.read(size)
        self._ended = len(piece) < size
        return piece


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

"""Reads text in chunks from plain or gzip files, in UTF-8 or in the encoding of a byte order mark.

The size of a chunk is bounded, so that a small gzip file with a very long text does not fill the memory.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from decoder.errors import PromptError

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

"""Splits the bytes from the terminal into whole pieces, since parts of a paste or reply could be mistaken for keys."""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dynatui.clean import clean

ESCAPE_DELAY_S = 0.1
"""Seconds without input after which an escape byte is the escape key."""
SEQUENCE_TIMEOUT_S = 1.0
"""Seconds without input after which a paste or sequence has ended."""
LONGEST_PASTE = 2**22
"""The rest is dropped."""
_LONGEST_SEQUENCE = 32
"""Keys and pointers send no longer ones, which Textual would mistake for keys."""
_PASTE_END = b"\x1b[201~"
_PIECE = re.compile(
    rb"""
      (?P<text> [^\x1b]+ )
    | (?P<paste> \x1b\[200~ )
    | (?P<sequence>
          \x1b\[\[ [A-E]                                      # function keys of the Linux console
        | \x1b\[ (?: 3 | 7 | 8 | 23 | 24 ) \$                 # shifted keys of rxvt
        | \x1b\[ (?! [\[M] ) [0-?]* [ -/]* [@-~]
        | \x1bO [0-9;]* [ -/:<-~]
        | \x1b [^\x1bO\[PX^_\]\x80-\xff]                      # a key with alt, here and in the next line
        | \x1b (?: [\xc2-\xdf][\x80-\xbf] | [\xe0-\xef][\x80-\xbf]{2} | [\xf0-\xf4][\x80-\xbf]{3} )
        | \x1b (?= \x1b | [\x80-\xc1\xf5-\xff] | [\xc2-\xf4][^\x80-\xbf] )
      )
    | (?P<dropped>
          \x1b\[M [\x20-\xff]{3}                              # a pointer event in X10 encoding: any three bytes
        | \x1b[PX^_\]] [\x08-\x0d\x20-\xff]* (?: \x07 | \x1b\\ )  # a reply that is a string
        # Sequences that an unexpected byte has cut off:
        | \x1b[PX^_\]] [\x08-\x0d\x20-\xff]* (?= [\x00-\x06\x0e-\x1a\x1c-\x1f] | \x1b[^\\] )
        | \x1b\[ [0-?]* [ -/]* (?= [^ -~] )
        | \x1b\[M [\x20-\xff]{0,2} (?= [\x00-\x1f] )
        | \x1b\[\[ (?= [^A-E] )
        | \x1bO [0-9;]* (?= [^ -~] )
      )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Pasted:
    """A paste with line ends as in Unix, and without control characters."""

    text: str


Piece: TypeAlias = str | Pasted
"""Text without an escape character, one sequence that begins with it, or a paste."""


class Keyboard:
    """Splits input into pieces; keeps the bytes of an incomplete piece until the rest arrives."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._pasting = False
        self._searched = 0
        """First byte at which the end of a paste may begin."""
        self._newest_s = 0.0
        self._decode = getincrementaldecoder("utf-8")("replace").decode

    def take(self, received: bytes, now: float) -> Iterator[Piece]:
        """The pieces that `received` completes or, if it is empty, that a timeout at `now` ends."""
        if received:
            self._buffer += received
            self._newest_s = now
            while cut := self._cut():
                kind, sequence = cut
                del self._buffer[: len(sequence)]
                yield from self._piece(kind, sequence)
        else:
            yield from self._given_up(now - self._newest_s)

    def _cut(self) -> tuple[str | None, bytes] | None:
        """None while the next piece is incomplete."""
        if not self._pasting:
            match = _PIECE.match(self._buffer)
            return (match.lastgroup, match[0]) if match else None
        end = self._buffer.find(_PASTE_END, self._searched)
        if end >= 0:
            return "pasted", bytes(self._buffer[: end + len(_PASTE_END)])
        del self._buffer[LONGEST_PASTE : -len(_PASTE_END)]
        self._searched = max(0, len(self._buffer) - len(_PASTE_END))
        return None

    def _piece(self, kind: str | None, sequence: bytes) -> Iterator[Piece]:
        # A character's bytes may be split between two reads. Only text can complete the character, so if a piece of
        # another kind follows, the bytes left from the first read are invalid.
        if kind != "text" and (text := self._decode(b"", final=True)):
            yield text
        match kind:
            case "text":
                if text := self._decode(sequence, final=bool(self._buffer)):
                    yield text
            case "sequence" if len(sequence) <= _LONGEST_SEQUENCE:
                yield sequence.decode("utf-8", "replace")
            case "paste":
                self._pasting = True
            case "pasted":
                self._pasting, self._searched = False, 0
                if text := sequence.removesuffix(_PASTE_END).decode("utf-8", "replace"):
                    yield Pasted(clean(text.replace("\r\n", "\n").replace("\r", "\n")))

    def _given_up(self, silent_s: float) -> Iterator[Piece]:
        is_a_key = not self._pasting and len(self._buffer) <= len("\x1b[")
        if silent_s < (ESCAPE_DELAY_S if is_a_key else SEQUENCE_TIMEOUT_S):
            return
        kind = "pasted" if self._pasting else "sequence" if is_a_key and self._buffer else "dropped"
        sequence = bytes(self._buffer)
        self._buffer.clear()
        yield from self._piece(kind, sequence)

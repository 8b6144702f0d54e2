"""Grammar of all output that the program may send to a terminal; any other bytes must come from foreign text.

It lists allowed sequences, not dangerous ones: cursor positions on the screen, colours of styles, modes that Textual
sets, and only printable characters between the sequences.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator

_SEQUENCE = re.compile(
    r"\x1b\[(?P<csi>[<-?]?[\d;:]*[ -/]*[@-~])"
    r"|\x1b\](?P<osc>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|\x1b(?P<lost>.?)"
    r"|\r?\n"
    r"|(?P<text>[^\x1b\r\n]+|\r)",
    re.DOTALL,
)
_MODES = re.compile(r"\?(?:7|25|1000|1003|1004|1006|1015|1049|2004|2026)[hl]|\?(?:2026|2048)\$p|>\d+u|<u|5n")
_COLOR = re.compile(r"\x1b\[[\d;]*m$")
"""Right before the screen is cleared."""
_POINTER = re.compile(r"22;[a-z-]+")
_MOVE = re.compile(r"(?P<line>\d+);(?P<column>\d+)H|(?P<right>\d+)C|(?P<erased>\d+)X|(?P<top>\d+);(?P<bottom>\d+)r|r")
_PLAIN_STYLES = {0, 1, 2, 3, 4, 7, 9, 22, 23, 24, 27, 29, 39, 49}
_PLAIN_STYLES |= {*range(30, 38), *range(40, 48), *range(90, 98), *range(100, 108)}
_BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_MARKS = {"\u061c", "\u200e", "\u200f", "\ufeff"}


def forbidden_output(sent: bytes, size: tuple[int, int], *, copies: bool = False) -> list[str]:
    try:
        text = sent.decode()
    except UnicodeDecodeError as error:
        return [str(error)]
    return [fault for match in _SEQUENCE.finditer(text) for fault in _faults(match, size, copies=copies)]


def _faults(match: "re.Match[str]", size: tuple[int, int], *, copies: bool) -> Iterator[str]:
    whole = match[0]
    if match["csi"] is not None and not (
        _MODES.fullmatch(match["csi"])
        or _is_style(match["csi"])
        or _stays(match["csi"], size)
        or (match["csi"] == "2J" and _COLOR.search(match.string[: match.start()]))
    ):
        yield f"the sequence {whole!r}"
    if match["osc"] is not None and not (_POINTER.fullmatch(match["osc"]) or (copies and _copies(match["osc"]))):
        yield f"the command {whole!r}"
    if match["lost"] is not None:
        yield f"an escape before {match['lost']!r}"
    if match["text"] is not None:
        yield from (f"the character {one!r} in {whole[:60]!r}" for one in sorted(set(whole)) if _steers(one))


def _is_style(sequence: str) -> bool:
    if not re.fullmatch(r"[\d;]*m", sequence):
        return False
    codes = [int(code or 0) for code in sequence[:-1].split(";")]
    while codes:
        first, *codes = codes
        if first in (38, 48):
            length = {5: 2, 2: 4}.get(codes[0] if codes else 0, 0)
            if not length or len(codes) < length or max(codes[1:length]) > 255:
                return False
            codes = codes[length:]
        elif first not in _PLAIN_STYLES:
            return False
    return True


def _stays(sequence: str, size: tuple[int, int]) -> bool:
    match = _MOVE.fullmatch(sequence)
    if match is None:
        return False
    columns, lines = size
    if match["right"]:
        return int(match["right"]) < columns
    if match["erased"]:
        return int(match["erased"]) <= columns
    if match["line"] is None:
        return match["top"] is None or 1 <= int(match["top"]) < int(match["bottom"]) <= lines
    return 1 <= int(match["line"]) <= lines and 1 <= int(match["column"]) <= columns


def _copies(command: str) -> bool:
    name, _, encoded = command.rpartition(";")
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return name == "52;c" and not any(_steers(one) for one in text if one != "\n")


def _steers(character: str) -> bool:
    steering = unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}
    return steering or unicodedata.bidirectional(character) in _BIDI or character in _MARKS

"""How much of a text occurs in it before: what a path of the draft tree that continues a repetition is recognised by.

Knows tokens as numbers, and neither trees nor models.
"""

from bisect import bisect_left
from collections.abc import Sequence

FARTHEST = 1 << 15
"""Tokens of the text, the newest, that are searched: keeps the time for a picture bounded."""


def repeated_length(text: Sequence[int], path: Sequence[int]) -> int:
    """Tokens of the longest suffix of `text` and `path` together that occurs within `text`; 0 where none does."""
    code: dict[int, str] = {}
    # Strings are searched in linear time; a character a token, whatever numbers a recording claims.
    whole = "".join(code.setdefault(token, chr(len(code))) for token in (*text[-FARTHEST:], *path))
    searched = whole[: len(whole) - len(path)]
    lengths = range(1, len(searched) + 1)
    return bisect_left(lengths, x=True, key=lambda length: whole[len(whole) - length :] not in searched)

"""Conversion of a data set's rows into prompts, as in the code of DynaTree's authors. This module reads no file."""

from collections.abc import Iterable, Iterator
from itertools import chain

SHORTEST = 200
"""Minimum length of a prompt, in characters."""
OPENING = 1_000
"""Maximum length of a prompt taken from a book, in characters."""


def paragraphs(rows: Iterable[str]) -> Iterator[str]:
    """Prompts of WikiText: rows (with line breaks) up to the next empty row or heading, joined by spaces.

    A paragraph shorter than `SHORTEST` is joined with the following paragraph.
    """
    waiting: list[str] = []
    for row in chain(rows, [""]):
        if row.strip() and not row.strip().startswith("="):
            waiting.append(row)
        elif len(joined := " ".join(waiting).strip()) >= SHORTEST:
            yield joined
            waiting.clear()


def openings(texts: Iterable[str]) -> Iterator[str]:
    """Prompts of PG-19: the first `OPENING` characters of each book with at least `SHORTEST` characters."""
    for text in texts:
        if len(stripped := text.strip()) >= SHORTEST:
            yield stripped[:OPENING]

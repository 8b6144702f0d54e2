"""Conversion of a data set's rows into prompts, as the authors of DynaTree do it. Knows no files."""

from collections.abc import Iterable, Iterator
from itertools import chain

SHORTEST = 200
"""Characters of the shortest prompt."""
OPENING = 1_000
"""Characters of the longest prompt from a book."""


def paragraphs(rows: Iterable[str]) -> Iterator[str]:
    """Prompts of WikiText: rows up to an empty one or a heading, joined by a space; short ones wait for the next.

    Args:
        rows: Rows with their line breaks, as in the data set.
    """
    waiting: list[str] = []
    for row in chain(rows, [""]):
        if row.strip() and not row.strip().startswith("="):
            waiting.append(row)
        elif len(joined := " ".join(waiting).strip()) >= SHORTEST:
            yield joined
            waiting.clear()


def openings(texts: Iterable[str]) -> Iterator[str]:
    """Prompts of PG-19: the opening of each book that is long enough."""
    for text in texts:
        if len(stripped := text.strip()) >= SHORTEST:
            yield stripped[:OPENING]


def all_of_it(texts: Iterable[str]) -> Iterator[str]:
    """Whole texts as prompts."""
    yield from texts

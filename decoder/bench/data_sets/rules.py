"""How the rows of a data set become prompts, as the authors of DynaTree have it. Knows no files."""

from collections.abc import Iterable, Iterator
from itertools import chain

SHORTEST = 200
"""Characters of a text that is worth a prompt."""
OPENING = 1_000
"""Characters of a book that a prompt may have."""


def paragraphs(rows: Iterable[str]) -> Iterator[str]:
    """Prompts of WikiText: rows up to an empty one or a heading, joined by a space; short ones wait for the next.

    Args:
        rows: Each with its line break, as the data set has them.
    """
    waiting: list[str] = []
    for row in chain(rows, [""]):
        if row.strip() and not row.strip().startswith("="):
            waiting.append(row)
        elif len(joined := " ".join(waiting).strip()) >= SHORTEST:
            yield joined
            waiting.clear()


def openings(texts: Iterable[str]) -> Iterator[str]:
    """Prompts of PG-19: how each book begins, without the short ones."""
    for text in texts:
        if len(stripped := text.strip()) >= SHORTEST:
            yield stripped[:OPENING]


def all_of_it(texts: Iterable[str]) -> Iterator[str]:
    """Texts that are prompts as they are."""
    yield from texts

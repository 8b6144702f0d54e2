"""Prompts of a data set."""

import msgspec


class TextSet(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts of one data set, uncut."""

    name: str
    """Name on the command line: wikitext, books, pg19, spec_bench/coding."""
    title: str
    """Title in tables, with its source: "PG-19-style (books_test)"."""
    stands_for: str | None = None
    """Data set of the paper that it stands in for: WikiText-2 or PG-19; None: none."""
    prompts: tuple[str, ...]

"""The loaded prompts of one data set."""

import msgspec


class TextSet(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Name on the command line, such as `wikitext`, `books`, `pg19` or `spec_bench/coding`."""
    title: str
    """Title in tables, with the source of the texts, such as "PG-19-style (books_test)"."""
    stands_for: str | None = None
    """Data set of the DynaTree paper that this data set represents; None if it represents none."""
    prompts: tuple[str, ...]

"""The loaded prompts of one data set."""

import msgspec


class TextSet(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts of one data set, not truncated."""

    name: str
    """Name on the command line, such as `wikitext`, `books`, `pg19` or `spec_bench/coding`."""
    title: str
    """Title in tables, with the source of the texts, such as "PG-19-style (books_test)"."""
    stands_for: str | None = None
    """Data set of the DynaTree paper that this data set represents: WikiText-2 or PG-19; None if it is neither."""
    prompts: tuple[str, ...]

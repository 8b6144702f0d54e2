"""What a data set is to a benchmark: named prompts."""

import msgspec


class TextSet(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts of one data set, uncut."""

    name: str
    """As it is named on the command line: wikitext, books, pg19, spec_bench/coding."""
    title: str
    """As tables call it, with where it comes from: "PG-19-style (books_test)"."""
    stands_for: str | None = None
    """The paper's data set whose figures stand beside it: WikiText-2 or PG-19."""
    prompts: tuple[str, ...]

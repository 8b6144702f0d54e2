"""Supported data sets by name: their files and titles, and the rules that make prompts of rows, as in the code of
DynaTree's authors. This module reads no files.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from dynatui.lab.bench.data_sets import sources
from dynatui.lab.bench.data_sets.sources import HubFiles, column

SHORTEST = 200
"""Minimum length of a prompt, in characters."""
OPENING = 1_000
"""Maximum length of a prompt taken from a book, in characters."""


def paragraphs(rows: Iterable[str]) -> Iterator[str]:
    """Prompts of WikiText: rows (with line breaks) joined by spaces; an empty row or a heading ends a paragraph.

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


Rows: TypeAlias = Callable[[Path], Iterator[str]]
"""Function that yields the rows of a data file."""

WIKITEXT_ON_HUB = HubFiles("Salesforce/wikitext", "wikitext-2-v1/validation-*.parquet")
PG19_ON_HUB = HubFiles("emozilla/pg19-test", "data/test-*.parquet")
"""Copy of PG-19's test split (100 books); the original deepmind/pg19 needs a script, which `datasets` cannot run."""


@dataclass(frozen=True)
class DataSet:
    name: str
    title: str
    stands_for: str | None
    rule: Callable[[Iterable[str]], Iterator[str]]
    in_folder: tuple[tuple[str, Rows], ...]
    """Pairs (file pattern, reader) for a data folder; the first pair whose pattern matches a file is used."""
    on_hub: HubFiles | None = None

    @property
    def places(self) -> str:
        """File patterns of the data set within a data folder, for error messages."""
        return " or ".join(pattern for pattern, _ in self.in_folder)


def _of_spec_bench(task: str) -> DataSet:
    return DataSet(
        name=f"spec_bench/{task}",
        title=f"Spec-Bench: {task}",
        stands_for=None,
        rule=iter,
        in_folder=((sources.FILE.as_posix(), partial(sources.of_task, task)),),
    )


_WIKITEXT = DataSet(
    name="wikitext",
    title="WikiText-2 (validation, with <unk>)",
    stands_for="WikiText-2",
    rule=paragraphs,
    in_folder=(("wikitext2/valid_v1_tokens.txt", sources.lines), (WIKITEXT_ON_HUB.pattern, column)),
    on_hub=WIKITEXT_ON_HUB,
)
_BOOKS = DataSet(
    name="books",
    title="PG-19-style (books_test, public-domain books)",
    stands_for="PG-19",
    rule=openings,
    in_folder=(("books_test/*.txt", sources.whole),),
)
_PG19 = DataSet(
    name="pg19",
    title="PG-19",
    stands_for="PG-19",
    rule=openings,
    in_folder=(("pg19/*.parquet", column), (f"pg19/{PG19_ON_HUB.pattern}", column)),
    on_hub=PG19_ON_HUB,
)
_TASKS = tuple(map(_of_spec_bench, sources.TASKS))

CATALOGUE: dict[str, tuple[DataSet, ...]] = {
    "wikitext": (_WIKITEXT,),
    "books": (_BOOKS,),
    "pg19": (_PG19,),
    "spec_bench": _TASKS,
    **{data_set.name: (data_set,) for data_set in _TASKS},
}
"""Data sets by their name on the command line; one name can stand for several data sets."""
NAMES = tuple(CATALOGUE)

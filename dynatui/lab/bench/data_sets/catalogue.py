"""Supported data sets by name: files, conversion of rows into prompts, and titles. This module reads no file."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from dynatui.lab.bench.data_sets import rules, spec_bench, texts
from dynatui.lab.bench.data_sets.hub import HubFiles
from dynatui.lab.bench.data_sets.parquet import column

Rows: TypeAlias = Callable[[Path], Iterator[str]]
"""Yields the rows of a data file."""

WIKITEXT_ON_HUB = HubFiles("Salesforce/wikitext", "wikitext-2-v1/validation-*.parquet")
PG19_ON_HUB = HubFiles("emozilla/pg19-test", "data/test-*.parquet")
"""Test split of PG-19 (100 books); deepmind/pg19 needs a loading script, which `datasets` no longer runs."""


@dataclass(frozen=True)
class DataSet:
    name: str
    title: str
    stands_for: str | None
    rule: Callable[[Iterable[str]], Iterator[str]]
    in_folder: tuple[tuple[str, Rows], ...]
    """Pairs (file pattern, reader) for a data folder; the first pattern that matches any file is used."""
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
        in_folder=((spec_bench.FILE.as_posix(), partial(spec_bench.of_task, task)),),
    )


_WIKITEXT = DataSet(
    name="wikitext",
    title="WikiText-2 (validation, with <unk>)",
    stands_for="WikiText-2",
    rule=rules.paragraphs,
    in_folder=(("wikitext2/valid_v1_tokens.txt", texts.lines), (WIKITEXT_ON_HUB.pattern, column)),
    on_hub=WIKITEXT_ON_HUB,
)
_BOOKS = DataSet(
    name="books",
    title="PG-19-style (books_test, public-domain books)",
    stands_for="PG-19",
    rule=rules.openings,
    in_folder=(("books_test/*.txt", texts.whole),),
)
_PG19 = DataSet(
    name="pg19",
    title="PG-19",
    stands_for="PG-19",
    rule=rules.openings,
    in_folder=(("pg19/*.parquet", column), (f"pg19/{PG19_ON_HUB.pattern}", column)),
    on_hub=PG19_ON_HUB,
)
_TASKS = tuple(map(_of_spec_bench, spec_bench.TASKS))

CATALOGUE: dict[str, tuple[DataSet, ...]] = {
    "wikitext": (_WIKITEXT,),
    "books": (_BOOKS,),
    "pg19": (_PG19,),
    "spec_bench": _TASKS,
    **{data_set.name: (data_set,) for data_set in _TASKS},
}
"""By names on the command line; a name can stand for several data sets."""
NAMES = tuple(CATALOGUE)

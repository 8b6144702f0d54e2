"""Data sets by name: their files and titles, the rules that make prompts of rows, as in the code of DynaTree's authors,
and the first prompts of each requested data set, from a data folder or from the Hugging Face hub.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

import msgspec

from decoder.errors import PromptError, quoted, require, shortened
from dynatui.lab.bench.data_sets import sources
from dynatui.lab.bench.data_sets.sources import FILE, TASKS, HubFiles, column, local_files, matching, of_task

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
"""Copy of PG-19's test split (100 books); the original deepmind/pg19 is a script."""


@dataclass(frozen=True)
class DataSet:
    name: str
    title: str
    stands_for: str | None
    rule: Callable[[Iterable[str]], Iterator[str]]
    in_folder: Mapping[str, Rows]
    """Readers by file pattern in a data folder; the first pattern that matches a file is used."""
    on_hub: HubFiles | None = None

    @property
    def places(self) -> str:
        """File patterns of the data set within a data folder, for error messages."""
        return " or ".join(self.in_folder)


_WIKITEXT = DataSet(
    "wikitext",
    "WikiText-2 (validation, with <unk>)",
    "WikiText-2",
    paragraphs,
    {"wikitext2/valid_v1_tokens.txt": sources.lines, WIKITEXT_ON_HUB.pattern: column},
    WIKITEXT_ON_HUB,
)
_BOOKS = DataSet(
    "books",
    "PG-19-style (books_test, public-domain books)",
    "PG-19",
    openings,
    {"books_test/*.txt": sources.whole},
)
_PG19 = DataSet(
    "pg19",
    "PG-19",
    "PG-19",
    openings,
    {"pg19/*.parquet": column, f"pg19/{PG19_ON_HUB.pattern}": column},
    PG19_ON_HUB,
)
_TASKS = tuple(
    DataSet(f"spec_bench/{task}", f"Spec-Bench: {task}", None, iter, {FILE.as_posix(): partial(of_task, task)})
    for task in TASKS
)

CATALOGUE: dict[str, tuple[DataSet, ...]] = {
    "wikitext": (_WIKITEXT,),
    "books": (_BOOKS,),
    "pg19": (_PG19,),
    "spec_bench": _TASKS,
    **{data_set.name: (data_set,) for data_set in _TASKS},
}
"""Data sets by their name on the command line; one name can stand for several data sets."""


class TextSet(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Name on the command line, such as `wikitext`, `books`, `pg19` or `spec_bench/coding`."""
    title: str
    """Title in tables, with the source of the texts, such as "PG-19-style (books_test)"."""
    stands_for: str | None = None
    """Data set of the DynaTree paper that this data set represents; None if it represents none."""
    prompts: tuple[str, ...]


def text_sets(names: Sequence[str], *, folder: Path | None, prompts: int) -> tuple[TextSet, ...]:
    """The first `prompts` prompts of each data set (fewer if it has fewer); a data set named twice is loaded once.

    Prompts are not truncated. If `folder` is None, the files come from the Hugging Face hub.
    """
    for name in names:
        require(name in CATALOGUE, f"there is no data set {quoted(name)}; choose from {', '.join(CATALOGUE)}")
    chosen = {each.name: each for name in names for each in CATALOGUE[name]}
    return tuple(_text_set(data_set, folder, prompts) for data_set in chosen.values())


def _text_set(data_set: DataSet, folder: Path | None, count: int) -> TextSet:
    files, read = _from_hub(data_set) if folder is None else _from_folder(data_set, folder)
    rows = chain.from_iterable(map(read, files))
    prompts = tuple(islice(data_set.rule(rows), count))
    if not prompts:
        raise PromptError(
            f"{shortened(files[0])} has no text that could be a prompt of {data_set.name}; set --data to another folder"
        )
    return TextSet(name=data_set.name, title=data_set.title, stands_for=data_set.stands_for, prompts=prompts)


def _from_hub(data_set: DataSet) -> tuple[list[Path], Rows]:
    if data_set.on_hub is None:
        raise PromptError(
            f"{data_set.name} can only be read from a folder; set --data to a folder that holds {data_set.places}"
        )
    return local_files(data_set.on_hub), column


def _from_folder(data_set: DataSet, folder: Path) -> tuple[list[Path], Rows]:
    try:
        lacks = f"has no {data_set.places}" if any(folder.iterdir()) else "is empty"
    except OSError as error:
        raise sources.unreadable(folder, error, f"a folder that holds {data_set.places}") from None
    for pattern, read in data_set.in_folder.items():
        if files := matching(folder, pattern):
            return files, read
    otherwise = ", or leave out --data to download the data set" if data_set.on_hub else ""
    raise PromptError(
        f"{shortened(folder)} {lacks}, so {data_set.name} cannot be read; set --data to another folder{otherwise}"
    )

"""First prompts of each requested data set, from a data folder or from the Hugging Face hub."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec

from decoder.errors import PromptError, quoted, require, shortened
from dynatui.lab.bench.data_sets.catalogue import CATALOGUE, NAMES, DataSet, Rows
from dynatui.lab.bench.data_sets.sources import column, local_files, matching


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
    chosen = _chosen(names)
    require(prompts >= 1, f"the number of prompts is {quoted(prompts)}; give 1 or more")
    return tuple(_text_set(data_set, folder, prompts) for data_set in chosen)


def _chosen(names: Sequence[str]) -> list[DataSet]:
    known = f"choose from {', '.join(NAMES)}"
    require(bool(names), f"no data set was named; {known}")
    for name in names:
        require(name in CATALOGUE, f"there is no data set {quoted(name)}; {known}")
    return list({each.name: each for name in names for each in CATALOGUE[name]}.values())


def _text_set(data_set: DataSet, folder: Path | None, count: int) -> TextSet:
    files, read = _from_hub(data_set) if folder is None else _from_folder(data_set, folder)
    with closing(_rows(files, read)) as rows:
        prompts = tuple(islice(data_set.rule(rows), count))
    if not prompts:
        raise PromptError(
            f"{shortened(files[0])} has no text that could be a prompt of {data_set.name}; set --data to another folder"
        )
    return TextSet(name=data_set.name, title=data_set.title, stands_for=data_set.stands_for, prompts=prompts)


def _rows(files: Iterable[Path], read: Rows) -> Generator[str, None, None]:
    for path in files:
        yield from read(path)


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
        raise PromptError(
            f"cannot read {shortened(folder)}: {error.strerror}; set --data to a folder that holds {data_set.places}"
        ) from None
    for pattern, read in data_set.in_folder:
        if files := matching(folder, pattern):
            return files, read
    otherwise = ", or leave out --data to download the data set" if data_set.on_hub else ""
    raise PromptError(
        f"{shortened(folder)} {lacks}, so {data_set.name} cannot be read; set --data to another folder{otherwise}"
    )

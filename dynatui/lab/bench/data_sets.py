"""Prompts of data sets, from a data folder or the Hugging Face hub, without models.

The rules make prompts of rows, as in the code of DynaTree's authors. Rows are read from text files, from one column of
parquet files, and from the questions of Spec-Bench (Xia et al. 2024). The catalogue names data sets with their files.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from glob import escape
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeAlias

import msgspec

from decoder.errors import PromptError, first_line, quoted, require, shortened
from decoder.models.hub import LIBRARY, PATIENCE_S, answered, explained
from decoder.system.libraries import quiet

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


def matching(folder: Path, pattern: str) -> list[Path]:
    """Files that match a pattern within a folder, sorted by name; only the file name can have wildcards."""
    place, name = (folder / pattern).parent, Path(pattern).name
    try:
        return sorted(path for path in place.iterdir() if path.match(name) and path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(place, error) from None


def unreadable(path: Path, error: OSError, other: str = "another folder") -> PromptError:
    return PromptError(f"cannot read {shortened(path)}: {error.strerror}; set --data to {other}")


def whole(path: Path) -> Iterator[str]:
    """Yields the content of a text file as a single row."""
    try:
        yield path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1}"
        raise PromptError(
            f"{shortened(path)} is not UTF-8 text ({where}); convert it, with iconv for example"
        ) from None


def lines(path: Path) -> Iterator[str]:
    """Yields the lines of a text file, each with its line break."""
    for text in whole(path):
        yield from StringIO(text)


COLUMN = "text"
ROWS_AT_ONCE = 16
"""Number of rows that are read at a time; it is small, because a row of PG-19 is an entire book."""


def column(path: Path) -> Generator[str, None, None]:
    """Yields the texts of the column `COLUMN` of a parquet file; each batch is read only when the caller needs it."""
    from datasets import load_dataset  # noqa: PLC0415 - the import is slow, and only parquet needs it

    files = {"rows": [escape(str(path))]}
    try:
        # `datasets` writes lock files even when streaming; a temporary folder keeps them out of the user's cache
        with TemporaryDirectory() as scratch, quiet("datasets"):
            rows = load_dataset(
                "parquet", data_files=files, split="rows", streaming=True, cache_dir=scratch, batch_size=ROWS_AT_ONCE
            )
            _require_texts(path, {name: feature.dtype for name, feature in rows.features.items()})
            yield from (row[COLUMN] for row in rows if row[COLUMN] is not None)
    except PromptError:
        raise
    except Exception as error:  # noqa: BLE001 - damaged files fail in many ways
        damaged = not (isinstance(error, OSError) and error.errno)
        remedy = "delete it and download it again" if damaged else "check its permissions, and the space in TMPDIR"
        raise PromptError(f"cannot read {shortened(path)} as parquet: {first_line(error)}; {remedy}") from None


def _require_texts(path: Path, kinds: Mapping[str, str]) -> None:
    if kinds.get(COLUMN) not in ("string", "large_string"):
        named = shortened(", ".join(f"{name} ({kind})" for name, kind in kinds.items()))
        raise PromptError(
            f"{shortened(path)} has no column {COLUMN} of texts, only {named}; set --data to another folder"
        )


@dataclass(frozen=True)
class HubFiles:
    repository: str
    pattern: str
    """Path of the files within the repository; can have wildcards in the file name."""


def local_files(files: HubFiles) -> list[Path]:
    """Local paths of the files, sorted by name; missing files are downloaded."""
    try:
        with quiet(LIBRARY):
            paths = _cached(files) or _downloaded(files)
    except Exception as error:  # noqa: BLE001 - names, networks and servers fail in many ways
        page = f"https://huggingface.co/datasets/{files.repository}"
        why, remedy = explained(error, "data set", page)
        raise PromptError(
            f"cannot download {files.repository} from the Hugging Face hub: {why}; {remedy}, or set --data to a "
            "folder of data"
        ) from None
    if not paths:
        raise PromptError(
            f"{files.repository} on the Hugging Face hub no longer has {files.pattern}; set --data to a folder"
        )
    return paths


def _cached(files: HubFiles) -> list[Path]:
    """Paths of the files in the local cache, without a request to the hub; empty if they are not cached."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - a data folder needs no hub
    from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: PLC0415 - as above

    with suppress(LocalEntryNotFoundError):
        folder = snapshot_download(files.repository, repo_type="dataset", local_files_only=True)
        return sorted(Path(folder).glob(files.pattern))
    return []


def _downloaded(files: HubFiles) -> list[Path]:
    from huggingface_hub import HfApi  # noqa: PLC0415 - a data folder needs no hub
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - as above

    disable_progress_bars()  # progress bars would overwrite the terminal app's screen
    hub = HfApi()
    # huggingface_hub retries downloads, but not this request, so without a network this request fails at once
    info = answered(lambda: hub.dataset_info(files.repository, timeout=2 * PATIENCE_S))
    names = sorted(file.rfilename for file in info.siblings or [] if Path(file.rfilename).match(files.pattern))
    return [
        Path(hub.hf_hub_download(files.repository, name, repo_type="dataset", etag_timeout=PATIENCE_S))
        for name in names
    ]


FILE = Path("spec_bench", "question.jsonl")
"""Path of the questions of Spec-Bench within a data folder."""
TASKS = (
    *("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities", "translation"),
    *("summarization", "qa", "math_reasoning", "rag"),
)
"""Tasks of Spec-Bench in the order of its questions file, which calls a task a category."""


class _Question(msgspec.Struct):
    category: Annotated[str, msgspec.Meta(min_length=1)]
    turns: Annotated[list[str], msgspec.Meta(min_length=1)]


def first_turns(path: Path) -> dict[str, list[str]]:
    """First turns of all questions, by task; raises PromptError if the file does not hold questions of Spec-Bench."""
    try:
        questions = msgspec.json.Decoder(_Question).decode_lines(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error, f"a folder that holds {FILE}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PromptError(
            f"{shortened(path)} holds no questions of Spec-Bench: {first_line(error)}; set --data to another folder"
        ) from None
    if not questions:
        raise PromptError(f"{shortened(path)} is empty; set --data to another folder")
    prompts: dict[str, list[str]] = {}
    for question in questions:
        prompts.setdefault(question.category, []).append(question.turns[0])
    return prompts


def of_task(task: str, path: Path) -> Iterator[str]:
    """Prompts of one task; raises PromptError if the file has no question of this task."""
    prompts = first_turns(path)
    if task not in prompts:
        raise PromptError(f"{shortened(path)} has no task {task}, only {shortened(', '.join(prompts))}")
    yield from prompts[task]


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


_CORPORA = (
    DataSet(
        "wikitext",
        "WikiText-2 (validation, with <unk>)",
        "WikiText-2",
        paragraphs,
        {"wikitext2/valid_v1_tokens.txt": lines, WIKITEXT_ON_HUB.pattern: column},
        WIKITEXT_ON_HUB,
    ),
    DataSet("books", "PG-19-style (books_test, public-domain books)", "PG-19", openings, {"books_test/*.txt": whole}),
    DataSet(
        "pg19",
        "PG-19",
        "PG-19",
        openings,
        {"pg19/*.parquet": column, f"pg19/{PG19_ON_HUB.pattern}": column},
        PG19_ON_HUB,
    ),
)
_TASKS = tuple(
    DataSet(f"spec_bench/{task}", f"Spec-Bench: {task}", None, iter, {FILE.as_posix(): partial(of_task, task)})
    for task in TASKS
)

CATALOGUE: dict[str, tuple[DataSet, ...]] = {
    **{data_set.name: (data_set,) for data_set in _CORPORA},
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
        raise unreadable(folder, error, f"a folder that holds {data_set.places}") from None
    for pattern, read in data_set.in_folder.items():
        if files := matching(folder, pattern):
            return files, read
    otherwise = ", or leave out --data to download the data set" if data_set.on_hub else ""
    raise PromptError(
        f"{shortened(folder)} {lacks}, so {data_set.name} cannot be read; set --data to another folder{otherwise}"
    )

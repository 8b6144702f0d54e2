"""Reading of data files: text files, one column of parquet files, and the questions of Spec-Bench (Xia et al. 2024).
The files are in a data folder, or they are downloaded once from the Hugging Face hub.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from glob import escape
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from decoder.errors import PromptError, first_line, shortened
from decoder.models.hub import LIBRARY, PATIENCE_S, answered, explained
from decoder.prompts.json_objects import MalformedError, Window, objects
from decoder.prompts.prompt import FieldError, Prompt, prompt_in
from decoder.prompts.text_chunks import text_chunks
from decoder.system.quiet import quiet


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
    try:
        # `datasets` writes lock files even when streaming; a temporary folder keeps them out of the user's cache
        with TemporaryDirectory() as scratch, quiet("datasets"):
            rows = _rows(path, scratch)
            _require_texts(path, rows.features)
            yield from (row[COLUMN] for row in rows if row[COLUMN] is not None)
    except PromptError:
        raise
    except Exception as error:  # noqa: BLE001 - damaged files fail in many ways
        damaged = not (isinstance(error, OSError) and error.errno)
        remedy = "delete it and download it again" if damaged else "check its permissions, and the space in TMPDIR"
        raise PromptError(f"cannot read {shortened(path)} as parquet: {first_line(error)}; {remedy}") from None


def _rows(path: Path, cache: str) -> Any:
    from datasets import load_dataset  # noqa: PLC0415 - the import is slow, and only parquet needs it

    files = {"rows": [escape(str(path))]}
    return load_dataset(
        "parquet", data_files=files, split="rows", streaming=True, cache_dir=cache, batch_size=ROWS_AT_ONCE
    )


def _require_texts(path: Path, features: dict[str, Any]) -> None:
    if COLUMN not in features:
        raise PromptError(
            f"{shortened(path)} has no column {COLUMN}, only {shortened(', '.join(features))}; set --data to another "
            "folder"
        )
    if (kind := features[COLUMN].dtype) not in ("string", "large_string"):
        raise PromptError(
            f"the column {COLUMN} of {shortened(path)} holds {kind}, not text; set --data to another folder"
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

    try:
        folder = snapshot_download(files.repository, repo_type="dataset", local_files_only=True)
    except LocalEntryNotFoundError:
        return []
    return sorted(Path(folder).glob(files.pattern))


def _downloaded(files: HubFiles) -> list[Path]:
    from huggingface_hub import HfApi  # noqa: PLC0415 - a data folder needs no hub
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - as above

    disable_progress_bars()  # progress bars would overwrite the terminal app's screen
    hub = HfApi()
    # huggingface_hub retries downloads, but not this request, so without a network this request fails at once
    info = answered(lambda: hub.dataset_info(files.repository, timeout=2 * PATIENCE_S))
    there = info.siblings or []
    names = sorted(file.rfilename for file in there if Path(file.rfilename).match(files.pattern))
    return [
        Path(hub.hf_hub_download(files.repository, name, repo_type="dataset", etag_timeout=PATIENCE_S))
        for name in names
    ]


FILE = Path("spec_bench", "question.jsonl")
"""Path of the questions of Spec-Bench within a data folder."""
TASKS = (
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
    "translation",
    "summarization",
    "qa",
    "math_reasoning",
    "rag",
)
"""Tasks of Spec-Bench in the order of its questions file, which calls a task a category."""


def first_turns(path: Path) -> dict[str, list[str]]:
    """First turns of all questions, by task; raises PromptError if the file does not hold questions of Spec-Bench."""
    prompts: dict[str, list[str]] = {}
    for question in _questions(path):
        prompts.setdefault(question.category, []).append(question.text)
    if not prompts:
        raise PromptError(f"{shortened(path)} is empty; set --data to another folder")
    return prompts


def of_task(task: str, path: Path) -> Iterator[str]:
    """Prompts of one task; raises PromptError if the file has no question of this task."""
    prompts = first_turns(path)
    if task not in prompts:
        raise PromptError(f"{shortened(path)} has no task {task}, only {shortened(', '.join(prompts))}")
    yield from prompts[task]


def _questions(path: Path) -> Iterator[Prompt]:
    shown = shortened(path)
    try:
        with path.open("rb") as file:
            for line, record in objects(Window(text_chunks(file, shown))):
                yield _question(record, f"{shown}, line {line}")
    except OSError as error:
        raise unreadable(path, error, f"a folder that holds {FILE}") from None
    except MalformedError as error:
        raise _foreign(f"{shown}, line {error.line}", error) from None


def _question(record: Mapping[str, Any], place: str) -> Prompt:
    try:
        found = prompt_in(record, "turns").prompt
    except FieldError as error:
        raise _foreign(place, error) from None
    if not (isinstance(found, Prompt) and found.category):
        raise _foreign(place, FieldError('the object has no field "category"'))
    return found


def _foreign(place: str, why: ValueError) -> PromptError:
    return PromptError(f"{place}, is not a question of Spec-Bench: {why}; set --data to another folder")

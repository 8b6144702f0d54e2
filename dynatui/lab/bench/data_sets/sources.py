"""Reading of data files: text files, one column of parquet files, and the questions of Spec-Bench (Xia et al. 2024).
The files are in a data folder, or they are downloaded once from the Hugging Face hub.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated

import msgspec

from decoder.errors import PromptError, first_line, shortened
from decoder.models.hub import LIBRARY, PATIENCE_S, answered, explained
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


def column(path: Path) -> Iterator[str]:
    """Yields the texts of the column `COLUMN` of a parquet file; each batch is read only when the caller needs it."""
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 - the import is slow, and only parquet needs it

    try:
        with parquet.ParquetFile(path) as file:
            kinds = {field.name: str(field.type) for field in file.schema_arrow}
            if COLUMN not in kinds:
                names = shortened(", ".join(kinds))
                raise PromptError(
                    f"{shortened(path)} has no column {COLUMN}, only {names}; set --data to another folder"
                )
            if kinds[COLUMN] not in ("string", "large_string"):
                raise PromptError(
                    f"the column {COLUMN} of {shortened(path)} holds {kinds[COLUMN]}, not text; set --data to another "
                    "folder"
                )
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=[COLUMN]):
                yield from (text for text in batch[0].to_pylist() if text is not None)
    except (OSError, ArrowException) as error:
        damaged = not (isinstance(error, OSError) and error.errno)
        remedy = "delete it and download it again" if damaged else "check its permissions"
        raise PromptError(f"cannot read {shortened(path)} as parquet: {first_line(error)}; {remedy}") from None


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

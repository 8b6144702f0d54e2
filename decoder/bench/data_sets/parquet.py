"""One column of a parquet file, read row by row through `datasets`. Knows no data sets."""

from collections.abc import Generator
from glob import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from decoder.bench.data_sets.quiet import quiet
from decoder.errors import PromptError, first_line, shortened

COLUMN = "text"
ROWS_AT_ONCE = 16
"""Rows of a batch; a row of PG-19 is a book."""


def column(path: Path) -> Generator[str, None, None]:
    """Yields the texts of a file's column `COLUMN`; reads no further than they are taken.

    Raises:
        PromptError: The file is no parquet file, is damaged, or has no such column of texts.
    """
    try:
        # locks are written even here; the user's cache stays unchanged and need not be writable
        with TemporaryDirectory() as scratch, quiet("datasets"):
            rows = _rows(path, scratch)
            _require_texts(path, rows.features)
            yield from (row[COLUMN] for row in rows if row[COLUMN] is not None)
    except PromptError:
        raise
    except Exception as error:  # noqa: BLE001 - damaged files fail in many ways
        damaged = not (isinstance(error, OSError) and error.errno)
        remedy = "delete it and download it again" if damaged else "check who may read it, and the disk of TMPDIR"
        raise PromptError(f"cannot read {shortened(path)} as parquet: {first_line(error)}; {remedy}") from None


def _rows(path: Path, cache: str) -> Any:
    from datasets import load_dataset  # noqa: PLC0415 - takes a second, which other data sets need not wait for

    files = {"rows": [escape(str(path))]}
    return load_dataset(
        "parquet", data_files=files, split="rows", streaming=True, cache_dir=cache, batch_size=ROWS_AT_ONCE
    )


def _require_texts(path: Path, features: dict[str, Any]) -> None:
    if COLUMN not in features:
        raise PromptError(
            f"{shortened(path)} has no column {COLUMN}, but {shortened(', '.join(features))}; let --data name another "
            "folder"
        )
    if (kind := features[COLUMN].dtype) not in ("string", "large_string"):
        raise PromptError(
            f"the column {COLUMN} of {shortened(path)} holds {kind}, no texts; let --data name another folder"
        )

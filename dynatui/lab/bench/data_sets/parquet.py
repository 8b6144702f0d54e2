"""One column of a parquet file, read row by row through `datasets`. This module does not depend on the data set."""

from collections.abc import Generator
from glob import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from decoder.errors import PromptError, first_line, shortened
from decoder.system.quiet import quiet

COLUMN = "text"
ROWS_AT_ONCE = 16
"""Number of rows in one read batch; it is small, because a row of PG-19 is an entire book."""


def column(path: Path) -> Generator[str, None, None]:
    """Yields the texts of the column `COLUMN` of a parquet file; reads batches only as the caller consumes rows."""
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

"""Small data set files, as found in local folders and on the hub."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

BOOK = "It was a long day. " * 60
ROWS = (" \n", " = Lobster = \n", " \n", f" {'It is blue . ' * 20} \n", " \n", f" {'It is fast . ' * 20} \n", " \n")


def parquet(columns: Mapping[str, Sequence[object]], **types: str) -> bytes:
    """A parquet file with these columns; the type of a column is inferred unless given in `types`."""
    file, arrays = BytesIO(), {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    pa.parquet.write_table(pa.table(arrays), file)
    return file.getvalue()


def questions(*tasks: str) -> bytes:
    """A Spec-Bench file with one question for each task."""
    lines = (
        {"question_id": at, "category": task, "turns": [f"{task} {at}", "And then?"]} for at, task in enumerate(tasks)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def written(path: Path, content: bytes) -> Path:
    """Writes a file and the folders above it; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@contextmanager
def heard(library: str) -> Iterator[list[str]]:
    """Messages that a library logs inside the context; the library's own handler is out of reach of tests."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(library).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(library).removeHandler(handler)

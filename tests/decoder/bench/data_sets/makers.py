"""Small files of data sets, as they are found in folders and on the hub."""

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
    """A parquet file of these columns, of types that are guessed where they are not given."""
    file, arrays = BytesIO(), {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    pa.parquet.write_table(pa.table(arrays), file)
    return file.getvalue()


def questions(*tasks: str) -> bytes:
    """A file of Spec-Bench with a question of each of these tasks."""
    lines = (
        {"question_id": at, "category": task, "turns": [f"{task} {at}", "And then?"]} for at, task in enumerate(tasks)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def written(path: Path, content: bytes) -> Path:
    """A file of this content, in a folder that is made where it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@contextmanager
def heard(library: str) -> Iterator[list[str]]:
    """What a library logs in the meantime: its own handler writes where no test looks."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(library).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(library).removeHandler(handler)

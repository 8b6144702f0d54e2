"""Figures as files, each complete or absent. matplotlib is an extra, imported when something is drawn."""

import os
from contextlib import suppress
from pathlib import Path

from decoder.bench.paper.report import PaperReport
from decoder.errors import ConfigError, first_line, shortened


def draw(report: PaperReport, folder: Path) -> list[Path]:
    """Draws every figure that the report has cells for, as PNG and SVG.

    Args:
        report: A whole measurement, or any part of one.
        folder: Where the files go; it is made where there is none.

    Returns:
        The files, in the order of the catalogue.

    Raises:
        ConfigError: matplotlib cannot be imported, or a file cannot be written.
    """
    try:
        from decoder.bench.paper.figures.catalogue import pictures  # noqa: PLC0415 - imports matplotlib
    except ImportError as error:
        raise ConfigError(
            f"figures cannot be drawn without matplotlib ({first_line(error)}); pip install 'dynatui[bench]'"
        ) from error
    return [_written(folder / name, content) for name, content in pictures(report)]


def _written(path: Path, content: bytes) -> Path:
    """The file, which holds all of the content; nothing is left of it where that cannot be."""
    begun = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        begun.write_bytes(content)
        begun.replace(path)
    except OSError as error:
        with suppress(OSError):
            begun.unlink()
        raise ConfigError(
            f"cannot write {shortened(path)}: {error.strerror}; let --output name a folder that can be written"
        ) from None
    return path

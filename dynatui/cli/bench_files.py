"""What `dynatui bench paper` takes its texts from and makes of its report; files are whole or absent.

Knows nothing of how anything is measured.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import msgspec

from decoder.errors import ConfigError, shortened
from dynatui.terminal import streams

if TYPE_CHECKING:
    from decoder.bench.paper.asked import TextSet
    from decoder.bench.paper.report import PaperReport

WITHOUT_FIGURES = "figures cannot be drawn without matplotlib: pip install 'dynatui[bench]'; all else is measured"


@dataclass(frozen=True)
class Parts:
    """Where texts come from, and what is made of a report."""

    text_sets: "Callable[..., tuple[TextSet, ...]]"
    """(names, folder=..., prompts=...) -> data sets."""
    writers: "tuple[Callable[[PaperReport, Path], list[Path]], ...]"
    """(report, folder) -> the files that they wrote there."""
    on_terminal: "Callable[[PaperReport], str]"


def parts() -> Parts:
    """The parts; imports torch."""
    from decoder.bench.data_sets.prompts import text_sets  # noqa: PLC0415 - whoever asks for help needs none of it
    from decoder.bench.paper.figures import draw  # noqa: PLC0415
    from decoder.bench.paper.write import FIGURES, write  # noqa: PLC0415

    from dynatui.cli.paper_tables import text  # noqa: PLC0415

    def drawn(report: "PaperReport", folder: Path) -> list[Path]:
        return draw(report, folder / FIGURES)

    drawable = find_spec("matplotlib") is not None
    if not drawable:
        streams.say(WITHOUT_FIGURES)
    # The page that is written links to the figures that are there.
    writers = (drawn, write) if drawable else (write,)
    return Parts(text_sets, writers, lambda report: text(report, get_terminal_size().columns))


def folder_for(path: Path) -> Path:
    """The folder, made where there is none; raises a ConfigError where that cannot be."""
    with _in(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def write_all(report: "PaperReport", folder: Path, made: Parts) -> None:
    """Writes the report and what the writers make of it, and tells the folder.

    Raises:
        ConfigError: Something cannot be written; what was written before is whole.
    """
    with _in(folder):
        _whole(folder / "report.json", msgspec.json.encode(report))
        count = 1 + sum(len(write(report, folder)) for write in made.writers)
    streams.say(f"wrote {count} files to {folder}")


@contextmanager
def _in(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = shortened(error.filename or folder)
        raise ConfigError(f"cannot write {place}: {error.strerror}; let --output name another folder") from None


def _whole(path: Path, content: bytes) -> None:
    """Writes all of it, or leaves the file as it was."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_bytes(content)
        half.replace(path)
    except OSError as error:
        with suppress(OSError):
            half.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None

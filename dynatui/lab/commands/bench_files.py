"""Reads the texts for `dynatui bench paper` and writes its result files, each file completely or not at all.

Knows nothing of the measurement.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import msgspec

from decoder.system.whole_files import write_whole
from dynatui.lab.commands.paper_tables import text
from dynatui.terminal import streams

if TYPE_CHECKING:
    from dynatui.lab.bench.data_sets.text_set import TextSet
    from dynatui.lab.bench.paper.report import PaperReport

WITHOUT_FIGURES = "matplotlib is not installed, so no figures are drawn; for figures, run pip install 'dynatui[bench]'"


@dataclass(frozen=True)
class Parts:
    """Functions that load data sets and write a report."""

    text_sets: "Callable[..., tuple[TextSet, ...]]"
    writers: "tuple[Callable[[PaperReport, Path], list[Path]], ...]"
    """Functions (report, folder) -> paths of the files written to the folder; called in this order."""
    on_terminal: "Callable[[PaperReport], str]"


def parts() -> Parts:
    """Imports torch."""
    from dynatui.lab.bench.data_sets.prompts import text_sets  # noqa: PLC0415 - not needed for --help
    from dynatui.lab.bench.paper.figures import draw  # noqa: PLC0415
    from dynatui.lab.bench.paper.write import FIGURES, write  # noqa: PLC0415

    def drawn(report: "PaperReport", folder: Path) -> list[Path]:
        return draw(report, folder / FIGURES)

    drawable = find_spec("matplotlib") is not None
    if not drawable:
        streams.say(WITHOUT_FIGURES)
    # The figures are drawn after all other files are written, so that the other files exist even if drawing fails.
    # Then the page is written again, with links to the figures.
    return Parts(text_sets, (write, drawn, write) if drawable else (write,), on_terminal)


def on_terminal(report: "PaperReport") -> str:
    """All tables and claims of a report as text, in the width of the terminal."""
    return text(report, get_terminal_size().columns)


def write_all(report: "PaperReport", folder: Path, made: Parts) -> None:
    """Writes the report as JSON, then the files of all writers, and prints the name of the folder.

    Raises:
        ConfigError: A file cannot be written; the files written before it are complete.
    """
    write_whole(folder / "report.json", msgspec.json.encode(report))
    written = {path for write in made.writers for path in write(report, folder)}
    streams.say(f"wrote {1 + len(written)} files to {folder}")

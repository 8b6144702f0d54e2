"""`dynatui report`: writes a recording as one HTML page, or a recorded run as an asciicast."""

import shutil
from pathlib import Path

from dynatui.cli.parameters import Declared, argument, option, switch
from dynatui.terminal import streams

_FILM = ".cast"
_USUAL_SIZE = (120, 40)
"""Columns and lines of an asciicast if there is no terminal."""

PARAMETERS: Declared = (
    argument("source", "FILE", "A recording.", Path),
    option(
        "--output PAGE.html|FILM.cast",
        "File to write: an HTML page or, if the name ends in .cast, an asciicast of one run in the size of this "
        "terminal.",
        Path,
        show_default="a file in the working directory, named after FILE",
    ),
    option(
        "--run N",
        "Write only this run of a recording; the first run has number 1.",
        int,
        least=1,
        show_default="all runs; for an asciicast, the first run",
    ),
    switch("--force", "Overwrite the file if it exists."),
)


def report(source: Path, output: Path | None, run: int | None, *, force: bool) -> int:
    """Write a recording as one HTML page, which needs nothing but a browser.

    The page replays text, tree, curves and race, with keys for control, and contains the recording's
    prompts and texts. With --output FILM.cast, one of its runs becomes an asciicast of the screen instead.
    """
    from dynatui.report.inputs import (  # noqa: PLC0415 - not needed for --help  # noqa: PLC0415
        page_name,
        page_of,
        require_free,
        require_other_file,
        write_report,
    )
    from dynatui.report.page import written  # noqa: PLC0415

    place = output or page_name(source)
    require_other_file(source, place)
    require_free(place, force=force)
    text = _film(source, run or 1) if place.suffix == _FILM else written(page_of(source, run))
    write_report(text, place, force=force)
    streams.say(f"wrote {place} ({len(text.encode()) / 1e6:.2f} MB)")
    return 0


def _film(source: Path, number: int) -> str:
    """One run of a recording as the text of an asciicast."""
    from dynatui.report.inputs import run_of  # noqa: PLC0415 - not needed for --help
    from dynatui.screen.run import filmed  # noqa: PLC0415

    return filmed(run_of(source, number), shutil.get_terminal_size(_USUAL_SIZE)).decode()

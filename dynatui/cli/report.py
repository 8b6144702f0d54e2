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
    from dynatui.report import inputs  # noqa: PLC0415 - not needed for --help
    from dynatui.report.page import written  # noqa: PLC0415

    place = output or inputs.page_name(source)
    inputs.require_other_file(source, place)
    inputs.require_free(place, force=force)
    if place.suffix == _FILM:
        from dynatui.screen.run import filmed  # noqa: PLC0415 - imports textual

        text = filmed(inputs.run_of(source, run or 1), shutil.get_terminal_size(_USUAL_SIZE)).decode()
    else:
        text = written(inputs.page_of(source, run))
    inputs.write_report(text, place, force=force)
    streams.say(f"wrote {place} ({len(text.encode()) / 1e6:.2f} MB)")
    return 0

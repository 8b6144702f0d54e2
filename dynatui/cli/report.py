"""`dynatui report`: writes a recording as one HTML page, or a recorded run as an asciicast."""

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from decoder.errors import ConfigError, shortened
from decoder.events import Event
from dynatui.cli.parameters import Declared, argument, option, switch
from dynatui.files import write_whole
from dynatui.record.reader import Runs
from dynatui.terminal import streams

MOST_BYTES = 256 * 2**20
"""Maximum size in bytes of a recording from which a page is made."""
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
    place = output or page_name(source)
    require_other_file(source, place)
    require_free(place, force=force)
    if place.suffix == _FILM:
        from dynatui.screen.run import filmed  # noqa: PLC0415 - imports textual

        text = filmed(run_of(source, run or 1), shutil.get_terminal_size(_USUAL_SIZE)).decode()
    else:
        text = page_of(source, run)
    write_report(text, place, force=force)
    streams.say(f"wrote {place} ({len(text.encode()) / 1e6:.2f} MB)")
    return 0


def page_of(path: Path, run: int | None = None) -> str:
    """The HTML page of a recording; `run`: number of a run, from 1, or None for all. Raises DecoderError if absent."""
    from dynatui.report.page import written  # noqa: PLC0415 - not needed for --help
    from dynatui.report.replay import replay_page  # noqa: PLC0415

    size = path.stat().st_size if path.is_file() else 0
    if size > MOST_BYTES:
        raise ConfigError(
            f"{shortened(path)} has {size >> 20} MiB, more than the {MOST_BYTES >> 20} MiB that a page can hold; "
            "record fewer prompts in one file"
        )
    runs = Runs(path) if run is None else [run_of(path, run)]
    return written(replay_page(path.name, runs, first=run or 1))


def run_of(path: Path, number: int) -> Sequence[Event]:
    """Run `number`, from 1; raises DecoderError if there is no such run."""
    runs = Runs(path)
    if number > len(runs):
        raise ConfigError(f"{shortened(path)} has no run {number}; give --run at most {len(runs)}")
    return runs[number - 1]


def page_name(source: Path) -> Path:
    """Default path of the page, in the working directory."""
    return Path(f"{Path(os.path.realpath(source)).stem}.html")


def require_other_file(source: Path, page: Path) -> None:
    with suppress(OSError):  # a missing or unreadable file is reported when it is read or written
        if page.samefile(source):
            remedy = "set --output to another file"
            raise ConfigError(f"{shortened(page)} is a source of the page and is not overwritten; {remedy}")


def require_free(path: Path, *, force: bool) -> None:
    if not os.path.lexists(path):  # if the check itself fails, `write_report` reports the error
        return
    if not path.is_file():
        raise ConfigError(f"{shortened(path)} is not a file that a page could replace; set --output to a file")
    if not force:
        remedy = "set --output to another file, or add --force"
        raise ConfigError(f"{shortened(path)} exists already and is not overwritten; {remedy}")


def write_report(text: str, path: Path, *, force: bool) -> None:
    """Writes atomically; a replaced file's permissions are retained. Raises ConfigError if nothing was written."""
    require_free(path, force=force)
    place = path.resolve()
    try:
        write_whole(place, text.encode(), mode=stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o600)
    except OSError as error:
        remedy = "set --output to a file in a folder with free space"
        raise ConfigError(f"cannot write {shortened(path)}: {error.strerror}; {remedy}") from None

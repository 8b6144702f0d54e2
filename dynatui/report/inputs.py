"""Files of a page: the recording that is read, and the page that is written."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from decoder.errors import ConfigError, shortened
from decoder.events import Event
from dynatui.record.reader import Runs
from dynatui.report.page import HtmlPage
from dynatui.report.replay import replay_page

MOST_BYTES = 256 * 2**20
"""Maximum size in bytes of a recording from which a page is made."""


def page_of(path: Path, run: int | None = None) -> HtmlPage:
    """`run` is the number of a run, from 1; None means all runs. Raises DecoderError if there is no such run."""
    size = path.stat().st_size if path.is_file() else 0
    if size > MOST_BYTES:
        raise ConfigError(
            f"{shortened(path)} has {size >> 20} MiB, more than the {MOST_BYTES >> 20} MiB that a page can hold; "
            "record fewer prompts in one file"
        )
    return replay_page(path.name, Runs(path) if run is None else [run_of(path, run)], first=run or 1)


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
        with NamedTemporaryFile("wb", dir=place.parent, prefix=".dynatui-", suffix=".html", delete=False) as file:
            try:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
                if place.exists():
                    Path(file.name).chmod(stat.S_IMODE(place.stat().st_mode))
                Path(file.name).replace(place)
            except BaseException:
                with suppress(OSError):
                    Path(file.name).unlink()
                raise
    except OSError as error:
        remedy = "set --output to a file in a folder with free space"
        raise ConfigError(f"cannot write {shortened(path)}: {error.strerror}; {remedy}") from None

"""Writes a page to disk atomically. Knows nothing of its content."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from decoder.errors import ConfigError, shortened


def require_free(path: Path, *, force: bool) -> None:
    if not os.path.lexists(path):  # if the check itself fails, `write` reports the error
        return
    if not path.is_file():
        raise ConfigError(f"{shortened(path)} is not a file that a page could replace; set --output to a file")
    if not force:
        raise ConfigError(
            f"{shortened(path)} exists already and is not overwritten; set --output to another file, or add --force"
        )


def write(text: str, path: Path, *, force: bool) -> None:
    """Writes atomically, readable by everyone who could read the replaced file. Raises a ConfigError if nothing was
    written.
    """
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
        raise ConfigError(
            f"cannot write {shortened(path)}: {error.strerror}; set --output to a file in a folder with free space"
        ) from None

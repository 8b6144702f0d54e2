"""Files that are complete or absent, whatever ends the program. Knows nothing of what is in them."""

from contextlib import suppress
from pathlib import Path

from decoder.errors import ConfigError, shortened


def made_folder(path: Path) -> Path:
    """The folder, with those that it lies in made where there are none.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {shortened(path)}: {error.strerror}; name another folder") from None
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file at once: a program that is killed leaves the one before.

    Raises:
        ConfigError: It cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # the folder may not be writable either
            partial.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {shortened(path)}: {error.strerror}; name another place") from None

"""Atomic writes: a file is never left incomplete, however the program ends. Independent of the contents."""

from contextlib import suppress
from pathlib import Path

from decoder.errors import ConfigError, shortened


def made_folder(path: Path) -> Path:
    """Creates a folder and its parents if they are missing. Raises ConfigError if this is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {shortened(path)}: {error.strerror}; name another folder") from None
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Replaces the contents of a file. If the program is killed meanwhile, the earlier contents remain. Raises
    ConfigError if the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # the folder may not be writable either
            partial.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {shortened(path)}: {error.strerror}; name another place") from None

"""One process at a time adds to a file: the system lets go of it when that process ends, however it ends."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from decoder.errors import ConfigError, shortened


@contextmanager
def alone(path: Path | None, remedy: str) -> Iterator[None]:
    """Within, no other process is let in; some network file systems know no locks, and there nobody is refused.

    Args:
        path: The file, which is made where there is none; None: nothing is held.
        remedy: What to do about a file that cannot be used: let --output name another file.

    Raises:
        ConfigError: Another process is at it, or it cannot be written.
    """
    if path is None:
        yield
        return
    try:
        file = path.open("ab")
    except OSError as error:
        raise ConfigError(f"cannot write {shortened(path)}: {error.strerror}; {remedy}") from None
    with file:
        _lock(file.fileno(), path, remedy)
        yield


def _lock(descriptor: int, path: Path, remedy: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"another process measures into {shortened(path)}; wait for it, or {remedy}") from None
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
            raise ConfigError(f"cannot write {shortened(path)}: {error.strerror}; {remedy}") from None

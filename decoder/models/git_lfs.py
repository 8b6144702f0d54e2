"""Git LFS pointers: the small text files that a clone without Git LFS has in place of large files."""

from pathlib import Path

_BEGIN = b"version https://git-lfs.github.com/spec/"
_LONGEST = 1024
"""Size in bytes that a pointer never exceeds, by its specification."""


def is_pointer(path: Path) -> bool:
    """Whether a file is a Git LFS pointer; False for a file that cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size >= _LONGEST:
            return False
        with path.open("rb") as file:
            return file.read(len(_BEGIN)) == _BEGIN
    except OSError:
        return False

"""Text files in a data folder. This module does not depend on the data set."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from decoder.errors import PromptError, shortened


def matching(folder: Path, pattern: str) -> list[Path]:
    """Files that match a pattern within a folder, sorted by name; the file name may contain wildcards."""
    place, name = (folder / pattern).parent, Path(pattern).name
    try:
        return sorted(path for path in place.iterdir() if path.match(name) and path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise PromptError(f"cannot read {shortened(place)}: {error.strerror}; set --data to another folder") from None


def whole(path: Path) -> Iterator[str]:
    """Yields the content of a text file as a single row."""
    try:
        yield path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PromptError(f"cannot read {shortened(path)}: {error.strerror}; set --data to another folder") from None
    except UnicodeDecodeError as error:
        at = error.start + 1
        raise PromptError(
            f"{shortened(path)} is not UTF-8 text (byte {at}); convert it, with iconv for example"
        ) from None


def lines(path: Path) -> Iterator[str]:
    """Yields the lines of a text file, each with its line break."""
    for text in whole(path):
        yield from StringIO(text)

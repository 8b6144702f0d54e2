"""The figures in the folder of a paper's benchmark, as they go into a page that is made to be shared.

Only pictures are read, known by their first bytes, and only files of the folder itself, since a link could bring any
file of the machine into the page. Knows no HTML.
"""

import errno
import os
import re
from pathlib import Path
from typing import TypeAlias

from decoder.errors import DecoderError, shortened
from dynatui.files import open_folder, opened_within

FIGURES = "figures"
_KINDS = (".png", ".svg")
_PNG = b"\x89PNG\r\n\x1a\n"
_SVG = re.compile(
    rb"(\xef\xbb\xbf)?(\s|<\?xml[^>]*>|<!--((?!-->).)*-->|<!DOCTYPE\s+svg[^>\[]*(\[[^\]]*\]\s*)?>)*<svg[\s/>]",
    re.DOTALL,
)
"""Byte order mark, declaration, comments and document type, then the opening tag."""
_OPENING = 2**12
"""Number of bytes in which the opening tag of an SVG begins."""

Figure: TypeAlias = tuple[str, str, bytes]
"""Name, media type and content of a figure."""


class FigureError(DecoderError):
    """A figure cannot be shown, or must not be."""


def figures(folder: Path, within: int, most: int) -> list[Figure]:
    """The figures in a folder, each once; if a figure exists as PNG and as SVG, the smaller file is used.

    Args:
        folder: Path of the folder, for error lines.
        within: Descriptor of the folder.
        most: Maximum number of bytes of all figures.

    Raises:
        FigureError: A figure is not a regular file in the folder, is no picture, cannot be read, or they are too large.
    """
    try:
        with open_folder(FIGURES, within) as descriptor:
            return _read(folder / FIGURES, descriptor, most)
    except FileNotFoundError:
        return []
    except OSError as error:
        is_other = error.errno in (errno.ELOOP, errno.ENOTDIR)
        raise _refused(folder / FIGURES, "it is a link or no folder" if is_other else str(error.strerror)) from None


def _read(folder: Path, descriptor: int, most: int) -> list[Figure]:
    sizes = {
        name: os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size
        for name in os.listdir(descriptor)
        if name.endswith(_KINDS)
    }
    smallest = {Path(name).stem: name for name in sorted(sizes, key=lambda name: sizes[name], reverse=True)}
    found, left = dict[bytes, Figure](), most
    for stem, name in sorted(smallest.items()):
        content = _content(folder / name, descriptor, left)
        left -= len(content)
        found.setdefault(content, (stem, _media_type(folder / name, content), content))
    return list(found.values())


def _content(path: Path, folder: int, most: int) -> bytes:
    try:
        with opened_within(folder, path.name) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise _refused(path, str(error.strerror)) from None
    if len(content) > most:
        raise _refused(path, "with it, the figures have more bytes than a page can hold")
    return content


def _media_type(path: Path, content: bytes) -> str:
    if content.startswith(_PNG):
        return "image/png"
    if _SVG.match(content[:_OPENING]):
        return "image/svg+xml"
    raise _refused(path, "it is neither PNG nor SVG")


def _refused(path: Path, why: str) -> FigureError:
    return FigureError(f"{shortened(path)} cannot go into a page: {why}; remove it, or copy the picture itself there")

"""Verdicts of kernel trials on disk, so that only the first start of a pair on a GPU tries its kernels.

A file is valid for one set of circumstances: GPU, releases of torch and Triton, models, sizes, and the sources of
kernels and trial. A file that is damaged, or of other circumstances, counts as absent. This module does not know what a
kernel is.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import msgspec
import torch

from decoder.errors import ConfigError
from decoder.system.whole_files import made_folder, write_whole

SOURCES = "session/cuda_graph", "forward/static", "forward/families", "sampling"
"""Folders of the package whose sources decide what a trial finds."""

Words = Annotated[str, msgspec.Meta(pattern=r"\A[ -~]*\Z", max_length=300)]
"""Text that is safe to print."""


class KeptVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: Words
    used: bool
    rows: tuple[int, ...] = ()
    """Rows of the passes in which a kernel of layers is used; empty for all."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    circumstances: tuple[str, ...]
    verdicts: dict[Words, KeptVerdict]


@dataclass(frozen=True)
class VerdictFile:
    """If `folder` is None, nothing is kept."""

    folder: Path | None
    circumstances: tuple[str, ...]

    def read(self) -> Mapping[str, KeptVerdict]:
        """By the names of the kernels; empty if there is no valid file."""
        if self.folder is None:
            return {}
        try:
            found = msgspec.json.decode(self._path(self.folder).read_bytes(), type=_File)
        except (OSError, msgspec.DecodeError):
            return {}
        return found.verdicts if found.circumstances == self.circumstances else {}

    def write(self, verdicts: Mapping[str, KeptVerdict]) -> None:
        """Replaces the file, or removes it if there are no verdicts. Where nothing can be written, the next start tries
        again.
        """
        if self.folder is None:
            return
        path = self._path(self.folder)
        try:
            if verdicts:
                made_folder(self.folder)
                write_whole(path, msgspec.json.encode(_File(self.circumstances, dict(verdicts))))
            else:
                path.unlink(missing_ok=True)
        except (ConfigError, OSError):
            return

    def _path(self, folder: Path) -> Path:
        return folder / f"{_digest(chr(0).join(self.circumstances).encode())}.json"


def verdicts_folder() -> Path:
    from platformdirs import user_cache_path  # noqa: PLC0415 - not needed without a GPU

    return user_cache_path("dynatui") / "kernels"


def releases() -> tuple[str, str]:
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    return f"torch {torch.__version__}", f"triton {triton}"


@cache
def source_digest() -> str:
    package = Path(__file__).parents[2]
    files = sorted(path for folder in SOURCES for path in (package / folder).rglob("*.py"))
    return _digest(b"\0".join(path.read_bytes() for path in files))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]

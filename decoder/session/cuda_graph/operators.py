"""Operators: small parts of drafts and verifications, each computed by a plain PyTorch function or by a kernel; and the
file of the verdicts of kernel trials. This module is independent of the kernels and of the trial.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import msgspec
import torch

from decoder.errors import ConfigError
from decoder.sampling.truncation import DeviceTruncation, Truncating
from decoder.session.cuda_graph.draft import DraftOperators
from decoder.session.cuda_graph.verify import VerificationOperators
from decoder.system.whole_files import made_folder, write_whole

SOURCES = "session/cuda_graph", "forward", "sampling"
"""Folders of the package whose source code may affect the result of a trial."""

Words = Annotated[str, msgspec.Meta(pattern=r"\A[ -~]*\Z", max_length=300)]
"""Text that is safe to print."""


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Result of the trial of a kernel."""

    words: Words
    used: bool = False
    rows: tuple[int, ...] = ()
    """Numbers of rows of the passes in which a kernel of layers is used; empty for all passes."""
    settled: bool = True
    """False if the trial gave no result: the next start tries the kernel again."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    circumstances: tuple[str, ...]
    verdicts: dict[Words, Verdict]


@dataclass(frozen=True)
class VerdictFile:
    """File of the verdicts found under these circumstances; if `folder` is None, there is no file."""

    folder: Path | None
    circumstances: tuple[str, ...]

    def read(self) -> Mapping[str, Verdict]:
        """Verdicts by kernel name; empty if there is no valid file for these circumstances."""
        if self.folder is None:
            return {}
        try:
            found = msgspec.json.decode(self._path(self.folder).read_bytes(), type=_File)
        except (OSError, msgspec.DecodeError):
            return {}
        return found.verdicts if found.circumstances == self.circumstances else {}

    def write(self, verdicts: Mapping[str, Verdict]) -> None:
        """Replaces the file by the settled verdicts, or removes it if there are none. If the file cannot be written,
        the next start tries the kernels again.
        """
        if self.folder is None:
            return
        path, kept = self._path(self.folder), {name: found for name, found in verdicts.items() if found.settled}
        try:
            if kept:
                made_folder(self.folder)
                write_whole(path, msgspec.json.encode(_File(self.circumstances, kept)))
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


@dataclass(frozen=True)
class Operators(VerificationOperators, DraftOperators):
    truncating: Truncating = DeviceTruncation.of
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """The verdict on each part that was tried as a kernel: a field's name, or a part of layers (see `part_of`)."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Parts that kernels compute."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict.used)

    def told(self, name: str, verdict: Verdict) -> "Operators":
        return replace(self, verdicts={**self.verdicts, name: verdict})

    def without_kernels(self, reason: str) -> "Operators":
        dropped = dict.fromkeys(self.kernels, Verdict(f"not kept, since {reason}"))
        return Operators(verdicts={**self.verdicts, **dropped})

    def __str__(self) -> str:
        """The parts that kernels compute, and the verdicts on the other parts; empty if no kernel was tried."""
        if not self.verdicts:
            return ""
        some = {
            name: f" ({', '.join(map(str, found.rows))} rows)" for name, found in self.verdicts.items() if found.rows
        }
        kernels = ", ".join(name + some.get(name, "") for name in self.kernels)
        plain = (f"{name} {found.words}" for name, found in self.verdicts.items() if not found.used or name in some)
        return "; ".join([f"kernels: {kernels or 'none'}", *plain])


def part_of(role: str, part: str) -> str:
    return f"{part} of the {role}"


PLAIN = Operators()

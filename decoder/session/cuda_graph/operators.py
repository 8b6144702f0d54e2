"""Operators: small parts of drafts and verifications, each computed by a plain PyTorch function or by a kernel; and the
file of the verdicts of kernel trials. This module is independent of the kernels and of the trial.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch

from decoder.errors import ConfigError
from decoder.sampling.truncation import DeviceTruncation, Truncating
from decoder.session.cuda_graph.draft import DraftOperators
from decoder.session.cuda_graph.verify import VerificationOperators
from decoder.system.whole_files import made_folder, write_whole

SOURCES = "session/cuda_graph", "forward/static", "forward/families", "sampling"
"""Folders of the package whose source code affects the result of a trial."""

Words = Annotated[str, msgspec.Meta(pattern=r"\A[ -~]*\Z", max_length=300)]
"""Text that is safe to print."""


class KeptVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: Words
    used: bool
    rows: tuple[int, ...] = ()
    """Numbers of rows of the passes in which a kernel of layers is used; empty for all passes."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    circumstances: tuple[str, ...]
    verdicts: dict[Words, KeptVerdict]


@dataclass(frozen=True)
class VerdictFile:
    """File of the verdicts found under these circumstances; if `folder` is None, there is no file."""

    folder: Path | None
    circumstances: tuple[str, ...]

    def read(self) -> Mapping[str, KeptVerdict]:
        """Verdicts by kernel name; empty if there is no valid file for these circumstances."""
        if self.folder is None:
            return {}
        try:
            found = msgspec.json.decode(self._path(self.folder).read_bytes(), type=_File)
        except (OSError, msgspec.DecodeError):
            return {}
        return found.verdicts if found.circumstances == self.circumstances else {}

    def write(self, verdicts: Mapping[str, KeptVerdict]) -> None:
        """Replaces the file, or removes it if there are no verdicts. If the file cannot be written, the next start
        tries the kernels again.
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


ABOUT = frozenset({"in_layers", "verdicts", "earlier", "unsettled"})
"""Fields of `Operators` that are not functions."""


@dataclass(frozen=True)
class Operators(VerificationOperators, DraftOperators):
    truncating: Truncating = DeviceTruncation.of
    in_layers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Parts of layers that kernels compute (see `part_of`), with the passes' numbers of rows, empty for all passes."""
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """The result in words for each part that was tried as a kernel."""
    earlier: frozenset[str] = frozenset()
    """Parts whose verdict comes from an earlier start of the program."""
    unsettled: frozenset[str] = frozenset()
    """Parts whose trial gave no result: the next start tries them again."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Parts that kernels compute."""
        names = (part.name for part in fields(self) if part.name not in ABOUT)
        parts = (name for name in names if getattr(self, name) is not getattr(PLAIN, name))
        return *parts, *self.in_layers

    def told(self, name: str, verdict: str, *, settled: bool = True) -> "Operators":
        """Adds a verdict on a part; `settled`: the next start does not try the part again."""
        unsettled = self.unsettled if settled else self.unsettled | {name}
        return replace(self, verdicts={**self.verdicts, name: verdict}, unsettled=unsettled)

    def with_part(self, name: str, kernel: Callable[..., object]) -> "Operators":
        part: dict[str, Any] = {name: kernel}
        return replace(self, **part)

    @property
    def settled(self) -> dict[str, KeptVerdict]:
        return {
            name: KeptVerdict(verdict, name in self.kernels, self.in_layers.get(name, ()))
            for name, verdict in self.verdicts.items()
            if name not in self.unsettled
        }

    def without_kernels(self, reason: str) -> "Operators":
        dropped = dict.fromkeys(self.kernels, f"not kept, since {reason}")
        return Operators(verdicts={**self.verdicts, **dropped})

    def __str__(self) -> str:
        """The parts that kernels compute, and the verdicts on the other parts; empty if no kernel was tried."""
        if not self.verdicts:
            return ""
        some = {name: f"{name} ({', '.join(map(str, rows))} rows)" for name, rows in self.in_layers.items() if rows}
        whole = [name for name in self.kernels if name not in some]
        kernels = "kernels, tried at an earlier start" if self.verdicts.keys() <= self.earlier else "kernels"
        plain = [f"{name} {verdict}" for name, verdict in self.verdicts.items() if name not in whole]
        return "; ".join([f"{kernels}: {', '.join([*whole, *some.values()]) or 'none'}", *plain])


def part_of(role: str, part: str) -> str:
    return f"{part} of the {role}"


PLAIN = Operators()

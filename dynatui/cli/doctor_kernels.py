"""The probe of `dynatui doctor` for what Triton needs to build kernels on a GPU: a C compiler, Python's headers and a
folder for its cache. Without them, rounds run with plain functions, which are slower.

The needs are those of `triton.runtime.build` and of Triton's cache knobs; Triton itself is not imported.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from decoder.errors import shortened
from dynatui.cli.doctor_findings import Case, Finding

_PLAIN = "or give --no-kernels, which uses plain functions"
_COMPILERS = ("gcc", "clang")


def kernels(case: Case) -> Iterator[Finding]:
    """Reports what is missing for Triton's kernels, on a device that uses them."""
    from decoder.system.device import choose_device, has_graphs  # noqa: PLC0415 - imports torch

    if not case.models.kernels or case.models.exact or not has_graphs(choose_device(case.models.device)):
        return
    if find_spec("triton") is None:
        yield Finding("note", "Triton is not installed", f"pip install triton, {_PLAIN}")
        return
    missing = list(lacking(os.environ, _headers()))
    yield from missing or [Finding("ok", f"Triton can build kernels, and keeps them in {cache_folder(os.environ)}")]


def lacking(environment: Mapping[str, str], headers: Path) -> Iterator[Finding]:
    """A note for each need of Triton that is not met; `headers` is the folder in which Python.h is expected."""
    named, path = environment.get("CC"), environment.get("PATH")
    if not any(shutil.which(name, path=path) for name in ((named,) if named is not None else _COMPILERS)):
        sought = f"CC names {shortened(named)}, which is not there" if named is not None else "there is no gcc or clang"
        remedy = f"install gcc, for example with apt install gcc libc6-dev, or name a compiler with CC, {_PLAIN}"
        yield Finding("note", f"Triton needs a C compiler, but {sought}", remedy)
    if not (headers / "Python.h").is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        yield Finding(
            "note",
            f"Triton needs Python's headers, but {headers} has no Python.h",
            f"install them, for example with apt install python{version}-dev, {_PLAIN}",
        )
    folder = cache_folder(environment)
    if not _can_be_written(folder):
        yield Finding(
            "note",
            f"Triton needs a folder for its cache, but {folder} cannot be written",
            f"set TRITON_CACHE_DIR to a folder that can be written, {_PLAIN}",
        )


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder in which Triton keeps compiled kernels."""
    if named := environment.get("TRITON_CACHE_DIR"):
        return Path(named)
    return Path(environment.get("TRITON_HOME") or environment.get("HOME") or Path.home()) / ".triton" / "cache"


def _can_be_written(folder: Path) -> bool:
    """Whether files can be made in the folder, which is made first if it does not exist; makes nothing."""
    nearest = next((each for each in (folder, *folder.absolute().parents) if each.exists()), Path("/"))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _headers() -> Path:
    scheme = sysconfig.get_default_scheme()
    # Debian's own scheme names /usr/local, where Debian has no headers.
    return Path(sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"])

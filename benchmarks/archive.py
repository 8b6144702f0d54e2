"""Archive of step results: one file that stays intact if the program is killed, and from which a later run resumes.

This module does not depend on what a step measures or on how a step is run.
"""

import gzip
import io
import json
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from decoder.errors import ConfigError, shortened
from decoder.system.whole_files import write_whole

NAME = "results.tar.gz"
STATUS, OUTPUT = "status.json", "output.txt"
BEGINNING_BYTES, END_BYTES = 50_000, 100_000
"""Numbers of bytes that are kept from the beginning and from the end of a step's output; the middle is dropped."""
FILES_BYTES = 600_000
"""Maximum total size in bytes of a step's kept files, not counting the step's output."""
State = Literal["done", "failed", "timed out", "stopped"]


@dataclass(frozen=True)
class Status:
    """Status of a step: how the step ended, or that it was interrupted."""

    state: State
    """How the step ended; "stopped" means that this program was killed while the step ran."""
    exit_code: int | None
    """Exit code of the step; None if the step was killed, or if its state is "stopped"."""
    seconds: float
    began_at: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    """Names of the step's files that are left out so that the kept files do not exceed `FILES_BYTES`."""


@dataclass(frozen=True)
class Result:
    """Result of a step: the status of the step, and the contents of its files by file name."""

    status: Status
    files: Mapping[str, bytes]


Results = Mapping[str, Result]
"""Results by step name."""


def files_in(folder: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Contents of a step's files, by file name, and names of the files that are not kept because of their size.

    Of a long output of the step, only the beginning and the end are kept.
    """
    contents: dict[str, bytes] = {}
    left_out: list[str] = []
    room = FILES_BYTES
    for path in sorted(folder.iterdir()):
        if path.name == OUTPUT:
            contents[path.name] = _shortened(path.read_bytes())
        elif path.is_file() and path.stat().st_size <= room:
            contents[path.name] = path.read_bytes()
            room -= len(contents[path.name])
        else:
            left_out.append(path.name)
    return contents, tuple(left_out)


def _shortened(output: bytes) -> bytes:
    more = len(output) - BEGINNING_BYTES - END_BYTES
    if more <= 0:
        return output
    return b"%b\n[%d bytes are left out]\n%b" % (output[:BEGINNING_BYTES], more, output[-END_BYTES:])


def keep(results: Results, folder: Path) -> None:
    """Writes all results to the archive in this folder, replacing an earlier archive.

    Raises:
        ConfigError: The archive cannot be written.
    """
    write_whole(folder / NAME, packed(results))


def latest_results(places: Iterable[Path]) -> dict[str, Result]:
    """Latest result of each step, by step name, from archives and folders of archives.

    Raises:
        ConfigError: There is no such file or folder, or a file is not an intact archive.
    """
    results: dict[str, Result] = {}
    for place in places:
        for path in sorted(place.glob("*.tar.gz")) if place.is_dir() else [place]:
            for name, result in _read(path).items():
                if name not in results or _age(results[name].status) <= _age(result.status):
                    results[name] = result
    return results


def _age(status: Status) -> tuple[str, bool]:
    """Sort key of a status: its start time; if two start times are equal, the final status sorts after "stopped"."""
    return status.began_at, status.state != "stopped"


def _read(path: Path) -> dict[str, Result]:
    try:
        return unpacked(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"there is no {shortened(path)}; name the file of an earlier run, or its folder") from None
    except (OSError, EOFError, ValueError, TypeError, KeyError, tarfile.TarError, zlib.error):
        raise ConfigError(f"{shortened(path)} is a damaged archive of results; leave it out, or remove it") from None


def packed(results: Results) -> bytes:
    """Results as a gzip-compressed tar file with one folder for each step."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, result in results.items():
            status = json.dumps(asdict(result.status), indent=1).encode() + b"\n"
            for file, data in {STATUS: status, **result.files}.items():
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(content.getvalue())


def unpacked(content: bytes) -> dict[str, Result]:
    """Results from a tar file that `packed` has made."""
    files = defaultdict[str, dict[str, bytes]](dict)
    # gzip's checksum detects a truncated file; tarfile alone would accept it.
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content)), mode="r:") as archive:
        for entry in archive:
            name, _, file = entry.name.partition("/")
            data = archive.extractfile(entry)
            files[name][file] = data.read() if data else b""
    return {name: Result(_status(contents.pop(STATUS)), contents) for name, contents in files.items()}


def _status(text: bytes) -> Status:
    fields = json.loads(text)
    return Status(**fields | {name: tuple(fields[name]) for name in ("command", "left_out")})

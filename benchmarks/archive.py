"""What is known of steps, all in one file, which is whole whatever ends the program, and from which others go on.

Knows neither what steps do nor how they are run.
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
"""Kept of what a step said."""
FILES_BYTES = 600_000
"""Kept of a step's other files, all together."""
State = Literal["done", "failed", "timed out", "stopped"]


@dataclass(frozen=True)
class Status:
    """How a step ended."""

    state: State
    """stopped: it was begun, and nobody was there any more when it ended."""
    exit_code: int | None
    """None: it was killed."""
    seconds: float
    began_at: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    """Its files for which there was no room."""


@dataclass(frozen=True)
class Result:
    """What came of a step."""

    status: Status
    files: Mapping[str, bytes]


Results = Mapping[str, Result]
"""By the steps' names."""


def files_in(folder: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """What is kept of a step's folder, of what it said the beginning and the end; and what files are too large."""
    found: dict[str, bytes] = {}
    left_out: list[str] = []
    room = FILES_BYTES
    for path in sorted(folder.iterdir()):
        if path.name == OUTPUT:
            found[path.name] = _shortened(path.read_bytes())
        elif path.is_file() and path.stat().st_size <= room:
            found[path.name] = path.read_bytes()
            room -= len(found[path.name])
        else:
            left_out.append(path.name)
    return found, tuple(left_out)


def _shortened(said: bytes) -> bytes:
    more = len(said) - BEGINNING_BYTES - END_BYTES
    if more <= 0:
        return said
    return b"%b\n[%d bytes are left out]\n%b" % (said[:BEGINNING_BYTES], more, said[-END_BYTES:])


def keep(results: Results, folder: Path) -> None:
    """Writes all results to one file, in place of the one that is there.

    Raises:
        ConfigError: It cannot be written.
    """
    write_whole(folder / NAME, packed(results))


def known(places: Iterable[Path]) -> dict[str, Result]:
    """What files of results say, or all such files of a folder: of each step what was found out last.

    Raises:
        ConfigError: There is no such place, or a file is not what it should be.
    """
    found: dict[str, Result] = {}
    for place in places:
        for path in sorted(place.glob("*.tar.gz")) if place.is_dir() else [place]:
            for name, result in _read(path).items():
                if name not in found or _age(found[name].status) <= _age(result.status):
                    found[name] = result
    return found


def _age(status: Status) -> tuple[str, bool]:
    """What is greater, the later something was found out."""
    return status.began_at, status.state != "stopped"


def _read(path: Path) -> dict[str, Result]:
    try:
        return unpacked(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"there is no {shortened(path)}; name the file of an earlier run, or its folder") from None
    except (OSError, EOFError, ValueError, TypeError, KeyError, tarfile.TarError, zlib.error):
        raise ConfigError(f"{shortened(path)} is no whole file of results; leave it out, or remove it") from None


def packed(results: Results) -> bytes:
    """Results as a compressed tar file of one folder a step."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, result in results.items():
            told = json.dumps(asdict(result.status), indent=1).encode() + b"\n"
            for file, data in {STATUS: told, **result.files}.items():
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(content.getvalue())


def unpacked(content: bytes) -> dict[str, Result]:
    """The results in such a file."""
    files = defaultdict[str, dict[str, bytes]](dict)
    # The end of a compressed file says whether it is whole; tar alone would not miss it.
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content)), mode="r:") as archive:
        for entry in archive:
            name, _, file = entry.name.partition("/")
            data = archive.extractfile(entry)
            files[name][file] = data.read() if data else b""
    return {name: Result(_status(found.pop(STATUS)), found) for name, found in files.items()}


def _status(told: bytes) -> Status:
    found = json.loads(told)
    return Status(**found | {name: tuple(found[name]) for name in ("command", "left_out")})

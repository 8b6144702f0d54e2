"""Log of a measurement, with one JSON line per record, from which a stopped measurement resumes.

The first line is the header, and every other line is a record. A killed process, a full disk or a power failure can
damage the last lines: they do not count, the next line is written in their place, and their results are measured again.
Only one process at a time may write a log; see `opened`. This module does not depend on the content of records.
"""

import errno
import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import torch
from msgspec import UNSET, UnsetType

from decoder.errors import ConfigError, shortened
from decoder.json_values import too_large
from dynatui.lab.bench import Note, differing
from dynatui.lab.bench.machine import Machine, examined, unlike, utc_now

_MOST_BYTES = 2**28
"""Maximum size of a log, so that reading an endless device such as /dev/zero cannot fill the memory."""
_PREFIX = b'{"type":"begun",'

Q = TypeVar("Q")
C = TypeVar("C")


class LogHeader(msgspec.Struct, Generic[Q, C], frozen=True, kw_only=True, tag="begun"):
    """First line of a log: machine, request, and times of forward passes. Fields that are UNSET are not written."""

    schema: int
    """Version of the lines' format."""
    started_at: str
    """Start of the measurement, UTC in ISO 8601."""
    commit: str | None | UnsetType = UNSET
    """Commit of the running source tree; see `source_commit`."""
    machine: Machine
    request: Q = msgspec.field(name="asked")
    """All options that determine the results; only a measurement with an equal request can resume the log."""
    costs: C
    context: int | UnsetType = UNSET
    """Context length of the pair, in tokens."""


H = TypeVar("H", bound=LogHeader[Any, Any])
R = TypeVar("R")
K = TypeVar("K")


@dataclass(frozen=True)
class LogFormat(Generic[H, R]):
    """Format of the lines of one kind of log."""

    lines: "msgspec.json.Decoder[H | R]"
    schema: int
    """The only supported version of the lines' format."""
    remedy: str
    """Advice in errors about an unusable file, such as "set --output to another file"."""


class RecordLog(Generic[H, R]):
    """Log with its header and records, kept in a file if a path is given, else in memory.

    The constructor, `begin` and `add` raise ConfigError if the file cannot be read or written, or is not such a log.
    """

    def __init__(self, path: Path | None, kind: LogFormat[H, R]) -> None:
        """Reads the log from its file, if the file exists; to write to the file, use `opened`."""
        self._path, self._kind = path, kind
        self.schema = kind.schema
        self.header: H | None = None
        self.records: list[R] = []
        self._whole = 0
        """Bytes of the header and of all records in the file."""
        if path is not None:
            self._read(path)

    def of(self, kind: type[K]) -> list[K]:
        """Records of one type, in the order of the lines."""
        return [record for record in self.records if isinstance(record, kind)]

    def begin(self, header: H, *, complete: bool = False) -> H:
        """Header of the log; if the log has no header yet, the given header is written and returned.

        Raises:
            ConfigError: The log has another request; or the log lacks results (`complete` is False) and was started on
                another machine, whose times cannot be compared with the times of this machine.
        """
        if self.header is None:
            self.add(header)
            return header
        if other := differing(header.request, self.header.request):
            raise ConfigError(
                f"{shortened(self._path)} was started with other values of {', '.join(other)}; "
                f"give the same values, or {self._kind.remedy}"
            )
        if not complete and (others := unlike(self.header.machine, header.machine)):
            raise self._refused(f"was started on another machine: {'; '.join(map(shortened, others))}")
        return self.header

    def add(self, line: H | R) -> None:
        content = msgspec.json.encode(line) + b"\n"
        if self._path is not None:
            try:
                with self._path.open("ab") as file:
                    if file.tell() > self._whole:
                        file.truncate(self._whole)
                    file.write(content)
            except OSError as error:
                raise _unusable("write", self._path, error, self._kind.remedy) from None
        self._take(line, content)

    def _take(self, line: H | R, content: bytes) -> None:
        self._whole += len(content)
        if isinstance(line, LogHeader):
            self.header = line  # type: ignore[assignment]  # the decoder's only type of header is H
        else:
            self.records.append(line)

    def _read(self, path: Path) -> None:
        content = self._content(path)
        ended = content.split(b"\n")[:-1]
        decoded = [self._decoded(line) for line in ended]
        while decoded and decoded[-1] is None:
            decoded.pop()
        begins = bool(decoded) and isinstance(decoded[0], LogHeader) and decoded[0].schema == self.schema
        if not content.startswith(_PREFIX[: len(content)]) or (ended and not begins):
            raise self._foreign()
        for number, (line, of) in enumerate(zip(decoded, ended, strict=False), 1):
            if line is None:
                raise self._refused(f"is damaged in line {number}")
            self._take(line, of + b"\n")

    def _content(self, path: Path) -> bytes:
        try:
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise _unusable("read", path, error, self._kind.remedy) from None
        if len(content) > _MOST_BYTES:
            raise self._refused(f"has more than {_MOST_BYTES >> 20} MiB, more than any measurement")
        return content

    def _decoded(self, line: bytes) -> H | R | None:
        """Header or record; None if the line is damaged."""
        try:
            decoded = self._kind.lines.decode(line)
        except msgspec.ValidationError:
            raise self._foreign() from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if too_large(msgspec.json.decode(line)) is not None:
            raise self._foreign()
        return decoded

    def _foreign(self) -> ConfigError:
        return ConfigError(
            f"{shortened(self._path)} holds no measurement that this version can read; {self._kind.remedy}"
        )

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(f"{shortened(self._path)} {why}; remove this file, or {self._kind.remedy}")


def begun(
    log: RecordLog[LogHeader[Q, C], Any],
    request: Q,
    device: torch.device,
    costs: Callable[[], C],
    note: Note = lambda _: None,
    *,
    complete: bool = False,
    commit: str | None | UnsetType = UNSET,
    context: int | UnsetType = UNSET,
) -> LogHeader[Q, C]:
    """Header of the log of a measurement that begins or resumes now, as `RecordLog.begin` returns it.

    Only for a new log, `costs` measures the times of forward passes.
    """
    if log.header is None:
        note("measuring forward passes")
    now = LogHeader(
        schema=log.schema,
        started_at=utc_now(),
        commit=commit,
        machine=examined(device),
        request=request,
        costs=costs() if log.header is None else log.header.costs,
        context=context,
    )
    return log.begin(now, complete=complete)


@contextmanager
def opened(path: Path | None, kind: LogFormat[H, R]) -> Iterator[RecordLog[H, R]]:
    """Log whose file is locked against other processes; on network file systems without locks, it is not locked.

    Raises ConfigError if another process holds the lock or the file cannot be written, or as `RecordLog` does.
    """
    if path is None:
        yield RecordLog(path, kind)
        return
    try:
        file = path.open("ab")
    except OSError as error:
        raise _unusable("write", path, error, kind.remedy) from None
    with file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process is writing to {shortened(path)}; wait until that process ends, or {kind.remedy}"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                raise _unusable("write", path, error, kind.remedy) from None
        yield RecordLog(path, kind)


def _unusable(what: str, path: Path, error: OSError, remedy: str) -> ConfigError:
    return ConfigError(f"cannot {what} {shortened(path)}: {error.strerror}; {remedy}")

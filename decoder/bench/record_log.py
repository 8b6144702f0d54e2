"""A file that keeps what was measured, a line at a time: a stopped measurement goes on from it, whatever stopped it.

The first line says what is measured, every other one is a record. A line that was cut off by a kill or a full disk is
dropped, and what it held is measured again. Knows nothing of what is measured.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from decoder.errors import ConfigError, shortened


class Beginning(Protocol):
    """A first line."""

    @property
    def schema(self) -> int:
        """The version of the lines."""

    @property
    def asked(self) -> Any:
        """All that decides what is measured, as a struct; a measurement goes on only with the same."""


B = TypeVar("B", bound=Beginning)
R = TypeVar("R")


class RecordLog(Generic[B, R]):
    """Records as they come; in a file, where one is named."""

    def __init__(
        self, path: Path | None, lines: "msgspec.json.Decoder[B | R]", first: type[B], schema: int, remedy: str
    ) -> None:
        """Reads what is there.

        Args:
            path: The file, which need not be there yet; None: nothing is kept.
            lines: Reads a line.
            first: The type of the first line, whose tag is begun.
            schema: The only version that is read.
            remedy: What to do about a file that cannot be used: let --output name another file.

        Raises:
            ConfigError: The file cannot be read, or is another one's.
        """
        self._path, self._decoder, self._first, self._remedy = path, lines, first, remedy
        self.begun: B | None = None
        self.records: list[R] = []
        for line in self._lines(schema):
            self._take(line)

    def begin(self, begun: B) -> B:
        """The first line, which is written now unless there is one.

        Raises:
            ConfigError: What is there was measured otherwise, or cannot be written.
        """
        if self.begun is None:
            self._write(begun)
            return begun
        here, asked = (msgspec.to_builtins(each.asked) for each in (self.begun, begun))
        if other := [name for name in asked if here[name] != asked[name]]:
            raise ConfigError(
                f"{self._shown} holds a measurement with other {', '.join(other)}; ask for the same, or {self._remedy}"
            )
        return self.begun

    def add(self, record: R) -> None:
        """Takes note of one more.

        Raises:
            ConfigError: It cannot be written.
        """
        self._write(record)

    @property
    def _shown(self) -> str:
        return shortened(self._path)

    def _take(self, line: B | R) -> None:
        if isinstance(line, self._first):
            self.begun = line
        else:
            self.records.append(line)  # type: ignore[arg-type]  # what is no first line is a record

    def _write(self, line: B | R) -> None:
        if self._path is not None:
            try:
                with self._path.open("ab") as file:
                    file.write(msgspec.json.encode(line) + b"\n")
            except OSError as error:
                raise self._unusable("write", error) from None
        self._take(line)

    def _lines(self, schema: int) -> list[B | R]:
        """The lines that are whole; what is left of one that is not is cut off the file."""
        if self._path is None:
            return []
        content = b""
        try:
            with suppress(FileNotFoundError):
                content = self._path.read_bytes()
        except OSError as error:
            raise self._unusable("read", error) from None
        whole = content[: content.rfind(b"\n") + 1]
        if not content.startswith(_BEGINNING[: len(content)]):
            raise self._foreign()
        found = [self._decoded(line) for line in whole.splitlines()]
        if found and not (isinstance(found[0], self._first) and found[0].schema == schema):
            raise self._foreign()
        if whole != content:
            try:
                os.truncate(self._path, len(whole))
            except OSError as error:
                raise self._unusable("write", error) from None
        return found

    def _decoded(self, line: bytes) -> B | R:
        try:
            return self._decoder.decode(line)
        except msgspec.DecodeError:
            raise self._foreign() from None

    def _foreign(self) -> ConfigError:
        return ConfigError(f"{self._shown} holds no measurement of this version; {self._remedy}")

    def _unusable(self, what: str, error: OSError) -> ConfigError:
        return ConfigError(f"cannot {what} {self._shown}: {error.strerror}; {self._remedy}")


_BEGINNING = b'{"type":"begun",'

"""The file that keeps what was measured, a line at a time: a stopped measurement goes on from it, whatever stopped it.

A line that was cut off by a kill or a full disk is dropped, and what it held is measured again.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from decoder.bench.machine import Machine
from decoder.bench.sampling.asked import Asked, Place
from decoder.bench.sampling.costs import RoundCosts
from decoder.errors import ConfigError, shortened

SCHEMA = 2


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    """The first line: what is measured, where, and what chooses shapes."""

    schema: int = SCHEMA
    started_at: str
    """UTC, ISO 8601."""
    machine: Machine
    asked: Asked
    costs: RoundCosts


class Expected(msgspec.Struct, frozen=True, kw_only=True, tag="expected"):
    """What closed forms say of one sampled text: means over its roots."""

    place: Place
    roots: int
    tokens: dict[str, tuple[float, ...]]
    """Block efficiency by verifier, in the order of `Asked.shapes`."""
    selected: dict[str, float]
    """By verifier, that of the shapes which a selector chose."""
    distance: tuple[float, ...]
    """L1 distance of target and draft at depth 0, 1, ... of a path that the draft drew."""
    acceptance: dict[str, tuple[float, ...]]
    """There, the chance that a solver's token is among as many draws as there are rollouts; `BOUND` is the most."""


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """One text that one contender decoded."""

    contender: str
    tokens: int
    rounds: int
    decode_s: float
    waited: float | None
    """Time that threads waited for a processor, over the turn's, where it is known."""


class Realised(msgspec.Struct, frozen=True, kw_only=True, tag="realised"):
    """The turns of all contenders on one text."""

    place: Place
    repeat: int
    turns: tuple[Decoded, ...]


Record: TypeAlias = Expected | Realised
BOUND = "bound"
"""Among acceptances, what no solver exceeds."""
_Line: TypeAlias = Begun | Expected | Realised
_LINES: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)
_BEGINNING = b'{"type":"begun",'


class Log:
    """Records as they come; in a file, where one is named."""

    def __init__(self, path: Path | None) -> None:
        """Reads what is there.

        Raises:
            ConfigError: The file cannot be read, or is another one's.
        """
        self._path = path
        self.begun: Begun | None = None
        self.expected: list[Expected] = []
        self.realised: list[Realised] = []
        for line in self._lines():
            self._take(line)

    def begin(self, begun: Begun) -> Begun:
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
                f"{self._shown} holds a measurement with other {', '.join(other)}; ask for the same, or let --output "
                "name another file"
            )
        return self.begun

    def add(self, record: Record) -> None:
        """Takes note of one more.

        Raises:
            ConfigError: It cannot be written.
        """
        self._write(record)

    @property
    def _shown(self) -> str:
        return shortened(self._path)

    def _take(self, line: _Line) -> None:
        match line:
            case Begun():
                self.begun = line
            case Expected():
                self.expected.append(line)
            case Realised():
                self.realised.append(line)

    def _write(self, line: _Line) -> None:
        if self._path is not None:
            try:
                with self._path.open("ab") as file:
                    file.write(msgspec.json.encode(line) + b"\n")
            except OSError as error:
                raise self._unusable("write", error) from None
        self._take(line)

    def _lines(self) -> list[_Line]:
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
        if found and not (isinstance(found[0], Begun) and found[0].schema == SCHEMA):
            raise self._foreign()
        if whole != content:
            os.truncate(self._path, len(whole))
        return found

    def _decoded(self, line: bytes) -> _Line:
        try:
            return _LINES.decode(line)
        except msgspec.DecodeError:
            raise self._foreign() from None

    def _foreign(self) -> ConfigError:
        return ConfigError(f"{self._shown} holds no measurement of this version; let --output name another file")

    def _unusable(self, what: str, error: OSError) -> ConfigError:
        return ConfigError(f"cannot {what} {self._shown}: {error.strerror}; let --output name another file")

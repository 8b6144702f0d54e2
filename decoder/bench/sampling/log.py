"""What is kept of a comparison, a line of a file each: its beginning, then what was found on every text."""

from pathlib import Path
from typing import TypeAlias

import msgspec

from decoder.bench.machine import Machine
from decoder.bench.record_log import RecordLog
from decoder.bench.sampling.costs import RoundCosts
from decoder.bench.sampling.request import Place, Request

SCHEMA = 2
REMEDY = "let --output name another file"


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    """The first line: what is measured, where, and what chooses shapes."""

    schema: int = SCHEMA
    started_at: str
    """UTC, ISO 8601."""
    machine: Machine
    request: Request = msgspec.field(name="asked")
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
_LINES: msgspec.json.Decoder[Header | Record] = msgspec.json.Decoder(Header | Record)


class Log(RecordLog[Header, Record]):
    """Records as they come; in a file, where one is named."""

    def __init__(self, path: Path | None) -> None:
        """Reads what is there.

        Raises:
            ConfigError: The file cannot be read, or is another one's.
        """
        super().__init__(path, _LINES, Header, SCHEMA, REMEDY)

    @property
    def expected(self) -> list[Expected]:
        """What closed forms say, text by text."""
        return [record for record in self.records if isinstance(record, Expected)]

    @property
    def realised(self) -> list[Realised]:
        """The turns on texts."""
        return [record for record in self.records if isinstance(record, Realised)]

    def holds_all(self, request: Request) -> bool:
        """Whether nothing is missing of what was asked for."""
        texts = {(record.place, record.repeat) for record in self.realised}
        decoded = sum(map(request.decodes, request.places())) * request.repeats
        return len(self.expected) == len(request.places()) and len(texts) == decoded

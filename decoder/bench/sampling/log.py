"""Log of a measurement of verifiers: a header, then records of texts."""

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
    """First line: request, machine and pass costs."""

    schema: int = SCHEMA
    started_at: str
    """UTC, ISO 8601."""
    machine: Machine
    request: Request = msgspec.field(name="asked")
    costs: RoundCosts


class Expected(msgspec.Struct, frozen=True, kw_only=True, tag="expected"):
    """Closed forms on one sampled text: means over its roots."""

    place: Place
    roots: int
    tokens: dict[str, tuple[float, ...]]
    """Block efficiency by verifier, in the order of `Request.shapes`."""
    selected: dict[str, float]
    """Block efficiency of the selector's shapes, by verifier."""
    distance: tuple[float, ...]
    """L1 distance of target and draft at depth 0, 1, ... of a path that the draft drew."""
    acceptance: dict[str, tuple[float, ...]]
    """By solver and depth of that path, the probability that its token is among K draws; `BOUND` is the upper bound."""


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one contender on one text."""

    contender: str
    tokens: int
    rounds: int
    decode_s: float
    waited: float | None
    """Share of the turn that threads waited for a processor; None where unknown."""


class Realised(msgspec.Struct, frozen=True, kw_only=True, tag="realised"):
    """Results of all contenders on one text."""

    place: Place
    repeat: int
    turns: tuple[Decoded, ...]


Record: TypeAlias = Expected | Realised
BOUND = "bound"
"""Name of the upper bound among acceptances."""
_LINES: msgspec.json.Decoder[Header | Record] = msgspec.json.Decoder(Header | Record)


class Log(RecordLog[Header, Record]):
    """Header and records; in a file, where a path is given."""

    def __init__(self, path: Path | None) -> None:
        """Reads the file.

        Raises:
            ConfigError: The file cannot be read, or holds something else.
        """
        super().__init__(path, _LINES, Header, SCHEMA, REMEDY)

    @property
    def expected(self) -> list[Expected]:
        """Closed forms, text by text."""
        return [record for record in self.records if isinstance(record, Expected)]

    @property
    def realised(self) -> list[Realised]:
        """Decoded texts."""
        return [record for record in self.records if isinstance(record, Realised)]

    def holds_all(self, request: Request) -> bool:
        """Whether no record of the request is missing."""
        texts = {(record.place, record.repeat) for record in self.realised}
        decoded = sum(map(request.decodes, request.places())) * request.repeats
        return len(self.expected) == len(request.places()) and len(texts) == decoded

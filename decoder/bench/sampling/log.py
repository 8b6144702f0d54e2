"""Log of a measurement of verifiers: a header, then one record per evaluated or decoded text."""

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
    """First line of the log: request, machine and times of forward passes."""

    schema: int = SCHEMA
    started_at: str
    """Start of the measurement, UTC in ISO 8601."""
    machine: Machine
    request: Request = msgspec.field(name="asked")
    costs: RoundCosts


class Expected(msgspec.Struct, frozen=True, kw_only=True, tag="expected"):
    """Results of the closed forms on one sampled text: means over its roots."""

    place: Place
    roots: int
    tokens: dict[str, tuple[float, ...]]
    """Expected block efficiency by verifier, of each shape in the order of `Request.shapes`."""
    selected: dict[str, float]
    """Expected block efficiency of the shapes that the selector chooses, by verifier."""
    distance: tuple[float, ...]
    """L1 distance between target and draft probabilities at depth 0, 1, ... along a path sampled from the draft."""
    acceptance: dict[str, tuple[float, ...]]
    """Acceptance by solver and depth along that path: the probability that a solver's token is among K draft tokens.

    The key `BOUND` has the upper bound on the acceptance of any solver.
    """


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """Result of decoding one text with one contender."""

    contender: str
    tokens: int
    rounds: int
    decode_s: float
    waited: float | None
    """Fraction of the decoding time that threads waited for a processor; None if unknown."""


class Realised(msgspec.Struct, frozen=True, kw_only=True, tag="realised"):
    """Results of decoding one text with all contenders, one after the other."""

    place: Place
    repeat: int
    turns: tuple[Decoded, ...]


Record: TypeAlias = Expected | Realised
BOUND = "bound"
"""Key of the upper bound in `Expected.acceptance`."""
_LINES: msgspec.json.Decoder[Header | Record] = msgspec.json.Decoder(Header | Record)


class Log(RecordLog[Header, Record]):
    """Header and records of a measurement; kept in a file if a path is given, else only in memory."""

    def __init__(self, path: Path | None) -> None:
        """Reads the file, if there is one.

        Raises:
            ConfigError: The file cannot be read, or is not a log of this benchmark.
        """
        super().__init__(path, _LINES, Header, SCHEMA, REMEDY)

    @property
    def expected(self) -> list[Expected]:
        """Records of the closed forms, one per text."""
        return [record for record in self.records if isinstance(record, Expected)]

    @property
    def realised(self) -> list[Realised]:
        """Records of decoded texts, one per text and repeat."""
        return [record for record in self.records if isinstance(record, Realised)]

    def holds_all(self, request: Request) -> bool:
        """Whether the log contains all records of the request."""
        texts = {(record.place, record.repeat) for record in self.realised}
        decoded = sum(map(request.decodes, request.places())) * request.repeats
        return len(self.expected) == len(request.places()) and len(texts) == decoded

"""Log of a measurement of verifiers: a header, then one record per evaluated or decoded text."""

from typing import TypeAlias

import msgspec

from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog
from dynatui.lab.bench.sampling.costs import RoundCosts
from dynatui.lab.bench.sampling.request import Place, SamplingRequest

SCHEMA = 2
Header: TypeAlias = LogHeader[SamplingRequest, RoundCosts]


class Expected(msgspec.Struct, frozen=True, kw_only=True, tag="expected"):
    """Results of the closed forms on one sampled text: means over its roots."""

    place: Place
    roots: int
    tokens: dict[str, tuple[float, ...]]
    """For each verifier, the expected block efficiency of each shape, in the order of `SamplingRequest.shapes`."""
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
    """Fraction of the decoding time in which threads waited for a processor; None if unknown."""


class Realised(msgspec.Struct, frozen=True, kw_only=True, tag="realised"):
    """Results of decoding one text with all contenders, one after the other."""

    place: Place
    repeat: int
    turns: tuple[Decoded, ...]


Record: TypeAlias = Expected | Realised
SamplingLog: TypeAlias = RecordLog[Header, Record]
FORMAT: LogFormat[Header, Record] = LogFormat(
    msgspec.json.Decoder(Header | Record), SCHEMA, "set --output to another file"
)
BOUND = "bound"


def holds_all(log: SamplingLog, request: SamplingRequest) -> bool:
    """Whether the log contains all records of the request."""
    evaluated, texts = log.of(Expected), {(record.place, record.repeat) for record in log.of(Realised)}
    return len(evaluated) == len(request.places()) and len(evaluated) + len(texts) == request.record_count

"""Log of a measurement of verifiers: a header with times of forward passes, then records of the results on texts."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import msgspec

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.tree_size.cost_model import Costs
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog
from dynatui.lab.bench.sampling.request import SamplingRequest, TextKey


class RoundCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Times of forward passes, in seconds."""

    first_s: float
    """Time of the first draft pass of a round, over the last committed token."""
    level_s: tuple[float, ...]
    """Time of a later draft pass of a round, indexed by the number of rows."""
    verify_s: tuple[float, ...]
    """Time of the target pass, indexed by the number of rows, root included."""

    def seconds(self, shape: DelayedTree) -> float:
        """Time of the passes of a round with a tree of this shape, assuming that no two rollouts share a node."""
        if not shape.depth:
            return self.verify_s[1]
        levels = [1] * shape.l1 + [shape.k] * (shape.l2 - 1) if shape.l2 else [1] * (shape.l1 - 1)
        return self.first_s + sum(_at(self.level_s, rows) for rows in levels) + _at(self.verify_s, 1 + shape.most_nodes)


def round_costs(measured: Sequence[Costs]) -> RoundCosts:
    """Lowest times of repeated measurements, since disturbances only add time; times never fall with more rows."""
    return RoundCosts(
        first_s=min(costs.catch_up.seconds(1) for costs in measured),
        level_s=_least([costs.draft.by_rows() for costs in measured]),
        verify_s=_least([[0.0, costs.plain_s(), *costs.verify.by_rows()[2:]] for costs in measured]),
    )


def _least(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    least = map(min, zip(*curves, strict=True))
    return tuple(accumulate(reversed([*least]), min))[::-1]


def _at(seconds: tuple[float, ...], rows: int) -> float:
    """Time of a pass; beyond the measured range, it is extrapolated linearly from the upper half of the range."""
    if rows < len(seconds):
        return seconds[rows]
    last, half = len(seconds) - 1, len(seconds) // 2
    return seconds[last] + (rows - last) * max(0.0, seconds[last] - seconds[half]) / (last - half)


SCHEMA = 2
Header: TypeAlias = LogHeader[SamplingRequest, RoundCosts]


class Expected(msgspec.Struct, frozen=True, kw_only=True, tag="expected"):
    """Results of the closed forms on one sampled text: means over its roots."""

    place: TextKey
    roots: int
    tokens: dict[str, tuple[float, ...]]
    """For each verifier, the expected block efficiency of each shape, in the order of `SamplingRequest.shapes`."""
    selected: dict[str, float]
    """Expected block efficiency of the shapes that the selector chooses, by verifier."""
    distance: tuple[float, ...]
    """L1 distance between target and draft probabilities at depth 0, 1, ... along a path sampled from the draft."""
    acceptance: dict[str, tuple[float, ...]]
    """Acceptance by solver and depth of this path: probability that the solver's token is among K draft tokens.

    The key `BOUND` has the upper bound on the acceptance of any solver.
    """


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    contender: str
    tokens: int
    rounds: int
    decode_s: float
    waited: float | None
    """Waiting time of all threads for a processor, divided by the turn's time; None if unknown."""


class Realised(msgspec.Struct, frozen=True, kw_only=True, tag="realised"):
    """Results of decoding one text with all contenders, one after the other."""

    place: TextKey
    repeat: int
    turns: tuple[Decoded, ...]


Record: TypeAlias = Expected | Realised
SamplingLog: TypeAlias = RecordLog[Header, Record]
FORMAT: LogFormat[Header, Record] = LogFormat(
    msgspec.json.Decoder(Header | Record), SCHEMA, "set --output to another file"
)
BOUND = "bound"


def holds_all(log: SamplingLog, request: SamplingRequest) -> bool:
    evaluated, texts = log.of(Expected), {(record.place, record.repeat) for record in log.of(Realised)}
    return len(evaluated) == len(request.places()) and len(evaluated) + len(texts) == request.record_count

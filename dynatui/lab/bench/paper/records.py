"""Log of a measurement: a header, then blocks of turns, one block per line. This module does not depend on models."""

from typing import TypeAlias

import msgspec

from decoder.events import Figures
from dynatui.lab.bench.paper.request import PaperRequest
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog

SCHEMA = 1


class CostCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Cost curve of the machine: seconds of a forward pass by its number of rows, which is its number of tokens."""

    rows: tuple[int, ...]
    verify_s: tuple[float, ...]
    """Of the target, for each number in `rows`."""
    draft_s: tuple[float, ...]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Turn: result of one lane on one prompt."""

    lane: str
    at: tuple[Figures, ...]
    """Figures at each of `PaperExperiment.lengths`; only the last figures include the peak memory of the entire turn.

    The figures compare the text with the text of `ar` in the same block, and state whether the first difference is a
    near tie.
    """
    kv_bytes: int | None
    """Allocated bytes of the target's and the draft's KV caches; None if unknown."""
    waited: float | None
    """Fraction of the turn's time in which threads waited for a processor; None if unknown."""


class Block(msgspec.Struct, frozen=True, kw_only=True, tag="block"):
    """Block: results of all lanes of an experiment on one prompt; a measurement resumes with the next missing block."""

    experiment: int
    """Index of the experiment in `PaperRequest.experiments`."""
    prompt: int
    repeat: int
    prompt_tokens: int
    turns: tuple[Turn, ...]
    load: float | None = None
    """Load average over the last minute of the block; None if unknown."""


class Resumed(msgspec.Struct, frozen=True, kw_only=True, tag="resumed"):
    """Record of a resumption: another commit or version of dynatui resumed the measurement."""

    at: str
    """UTC in ISO 8601."""
    commit: str | None
    version: str


Header: TypeAlias = LogHeader[PaperRequest, CostCurve]
Record: TypeAlias = Block | Resumed
PaperLog: TypeAlias = RecordLog[Header, Record]
FORMAT: LogFormat[Header, Record] = LogFormat(
    msgspec.json.Decoder(Header | Record), SCHEMA, "set --output to another folder"
)


def blocks_of(log: PaperLog) -> list[Block]:
    """All blocks; if two processes measured the same block, only its first record is returned."""
    blocks: dict[tuple[int, int, int], Block] = {}
    for block in log.of(Block):
        blocks.setdefault((block.experiment, block.prompt, block.repeat), block)
    return list(blocks.values())


def has_text_of(figures: Figures, plain: Figures) -> bool:
    """Whether a lane's text equals the text of plain decoding; the lengths of the texts must also be equal.

    If the text may differ by design, only the lengths are compared.
    """
    return figures.identical_to_ar is not False and figures.committed == plain.committed

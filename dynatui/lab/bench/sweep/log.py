"""Shards of a sweep, and the log of a shard's results, from which a stopped sweep resumes. Knows no models."""

from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import msgspec

from decoder.errors import require
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog
from dynatui.lab.bench.sweep.outcome import Outcome
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.spaces import Setting

SCHEMA = 1
MOST_SHARDS = 1000
Header: TypeAlias = LogHeader[SweepRequest, None]


class Kept(msgspec.Struct, frozen=True, kw_only=True, tag="setting"):
    """Result of one setting."""

    key: str
    """Name of the setting within its grid; see `Setting.key`."""
    outcome: Outcome | None = None
    """None if the setting has no speed."""
    reason: str | None = None
    """Reason why the setting has no speed."""


SweepLog: TypeAlias = RecordLog[Header, Kept]
FORMAT: LogFormat[Header, Kept] = LogFormat(
    msgspec.json.Decoder(Header | Kept), SCHEMA, "set --output to another folder"
)


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of a sweep, with a log of its own; parts are numbered from 1."""

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        require(
            1 <= self.number <= self.count <= MOST_SHARDS,
            f"--shard is {self.number}/{self.count}; give I/N with I from 1 to N, and N up to {MOST_SHARDS}",
        )

    @property
    def name(self) -> str:
        """Name of the log without its suffix."""
        return f"sweep-{self.number}-of-{self.count}"

    def of(self, request: SweepRequest) -> list[Setting]:
        """The shard's settings in the order of measurement, which is random, so that the elapsed time predicts the
        remaining time.
        """
        settings = request.settings
        return Random(request.seed).sample(settings, len(settings))[self.number - 1 :: self.count]

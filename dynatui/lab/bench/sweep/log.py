"""Log of the results of a sweep's shard, from which a stopped sweep resumes. Knows no models."""

from typing import TypeAlias

import msgspec

from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog
from dynatui.lab.bench.sweep.outcome import Outcome
from dynatui.lab.bench.sweep.request import SweepRequest

SCHEMA = 1
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

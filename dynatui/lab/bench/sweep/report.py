"""Logs of a sweep's shards, and the report on all logs in a folder, as `--json` writes it."""

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from decoder.errors import ConfigError, first_line, require, shortened
from dynatui.lab.bench.machine import Machine
from dynatui.lab.bench.on_pair import differing
from dynatui.lab.bench.record_log import LogFormat, LogHeader
from dynatui.lab.bench.sweep.spaces import GridPoint, SweepRequest
from dynatui.lab.frame import Median

LOG_SCHEMA = 1
SCHEMA = 2
State = Literal["waiting", "done", "refused"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a setting whose texts equal the texts of plain decoding (`ar`), except after near ties of two logits.

    Numbers are medians over prompts; speeds leave out prompts whose text differs from the text of `ar`.
    """

    speed: Median
    """Speed relative to `ar` on the same prompt; settings are ranked by the median of this ratio over prompts."""
    over_reference: Median | None
    """Speed relative to the reference; None if there is no prompt on which setting and reference both have a speed."""
    tokens_per_second: float
    tokens_per_round: float
    """Mean number of committed tokens per round: the paper's L-bar."""
    acceptance_rate: float | None
    nodes_per_round: float
    rounds: float
    """Rounds of drafting and verification per text."""
    round_ms: float
    disturbed: int
    """Number of decoded texts whose times are disturbed, because threads waited too long for a processor."""
    near_ties: int = 0
    """Number of prompts whose text differs from the text of `ar` after a near tie of two logits."""


Header: TypeAlias = LogHeader[SweepRequest, None]


class Kept(msgspec.Struct, frozen=True, kw_only=True, tag="setting"):
    """Line of a log: the key of a setting, and the setting's result or the reason why it has no speed."""

    key: str
    outcome: Outcome | None = None
    reason: str | None = None


FORMAT: LogFormat[Header, Kept] = LogFormat(
    msgspec.json.Decoder(Header | Kept), LOG_SCHEMA, "set --output to another folder"
)


class SettingState(msgspec.Struct, frozen=True, kw_only=True):
    setting: GridPoint
    state: State
    outcome: Outcome | None = None
    """Result of the setting; None if the state is not "done"."""
    reason: str | None = None
    """Reason why the setting has no speed; None if the state is not "refused"."""

    @property
    def speed(self) -> float | None:
        """Median speed relative to plain decoding; None without a result."""
        return self.outcome.speed.value if self.outcome else None


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """State of all settings of a sweep at one moment."""

    schema: int = SCHEMA
    folder: str
    request: SweepRequest = msgspec.field(name="asked")
    machines: dict[str, Machine]
    """The machine of each log, by the log's name."""
    trials: tuple[SettingState, ...]
    """States and results of all settings, in the order of the grid."""

    def best(self, count: int) -> list[SettingState]:
        """The `count` fastest settings, in descending order of speed."""
        known = [trial for trial in self.trials if trial.speed is not None]
        return sorted(known, key=lambda trial: trial.speed or 0.0, reverse=True)[:count]


def read(folder: Path) -> SweepReport:
    """Report on all logs in a folder; raises ConfigError if there is no log, or if logs are of different sweeps."""
    found = {path.stem: _lines(path) for path in sorted(folder.glob("sweep-*-of-*.jsonl"))}
    logs = {name: lines for name, lines in found.items() if lines}
    require(bool(logs), f"{shortened(folder)} holds no sweep; run a sweep first, or set --output to its folder")
    headers = {name: lines[0] for name, lines in logs.items() if isinstance(lines[0], LogHeader)}
    request = next(iter(headers.values())).request
    for name, header in headers.items():
        other = differing(header.request, request)
        require(
            not other,
            f"{name}.jsonl in {shortened(folder)} is of another sweep, with other values of {', '.join(other)}; move "
            "the logs of each sweep to a folder of their own",
        )
    kept = {line.key: line for lines in logs.values() for line in lines if isinstance(line, Kept)}
    return SweepReport(
        folder=str(folder),
        request=request,
        machines={name: header.machine for name, header in headers.items()},
        trials=tuple(_trial(setting, kept.get(setting.key)) for setting in request.settings),
    )


def _lines(path: Path) -> list[Header | Kept]:
    """Lines of a log; an incomplete last line, which another process may be writing, is left out."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {shortened(path)}: {error.strerror}; {FORMAT.remedy}") from None
    try:
        return [FORMAT.lines.decode(line) for line in content.split(b"\n")[:-1]]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shortened(path)} is no log of a sweep: {first_line(error)}; {FORMAT.remedy}") from None


def _trial(setting: GridPoint, kept: Kept | None) -> SettingState:
    if kept is None:
        return SettingState(setting=setting, state="waiting")
    return SettingState(
        setting=setting, state="done" if kept.outcome else "refused", outcome=kept.outcome, reason=kept.reason
    )

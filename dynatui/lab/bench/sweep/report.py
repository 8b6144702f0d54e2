"""Report of a sweep: all logs of a folder, in the form written by `--json`. Knows no models."""

from pathlib import Path
from typing import Literal

import msgspec

from decoder.errors import ConfigError, first_line, require, shortened
from dynatui.lab.bench.machine import Machine
from dynatui.lab.bench.on_pair import differing
from dynatui.lab.bench.record_log import LogHeader
from dynatui.lab.bench.sweep.log import FORMAT, Header, Kept
from dynatui.lab.bench.sweep.outcome import Outcome
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.spaces import Setting, Shard

SCHEMA = 2
State = Literal["waiting", "running", "done", "refused"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """State of one setting, and the setting's result if it was measured."""

    setting: Setting
    state: State
    outcome: Outcome | None = None
    """Result of the measurement; None unless the state is done."""
    reason: str | None = None
    """Reason why the setting has no speed; None unless the state is refused."""

    @property
    def settled(self) -> bool:
        """Whether measuring the setting is finished, with or without a speed."""
        return self.state in ("done", "refused")

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
    trials: tuple[Trial, ...]
    """States and results of all settings, in the order of the grid."""

    @property
    def settled(self) -> int:
        """Number of settings whose measurement is finished."""
        return sum(trial.settled for trial in self.trials)

    @property
    def complete(self) -> bool:
        """Whether all settings are finished."""
        return self.settled == len(self.trials)

    @property
    def share(self) -> float:
        """Fraction of the sweep's tokens that belong to finished settings; used as the progress of the sweep."""
        done = sum(trial.setting.length for trial in self.trials if trial.settled)
        return done / sum(trial.setting.length for trial in self.trials)

    def best(self, count: int) -> list[Trial]:
        """The `count` fastest settings, in descending order of speed."""
        known = [trial for trial in self.trials if trial.speed is not None]
        return sorted(known, key=lambda trial: trial.speed or 0.0, reverse=True)[:count]


def read(folder: Path, shard: Shard | None = None, running: Setting | None = None) -> SweepReport:
    """Report of all logs in a folder, or of one shard; `running` is being measured by this process.

    Raises:
        ConfigError: The folder has no log of a sweep, or logs of different sweeps, or a log cannot be read.
    """
    found = {path.stem: _lines(path) for path in sorted(folder.glob("sweep-*-of-*.jsonl"))}
    logs = {name: lines for name, lines in found.items() if lines and (shard is None or name == shard.name)}
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
    settings = request.settings if shard is None else shard.of(request.settings, request.seed)
    return SweepReport(
        folder=str(folder),
        request=request,
        machines={name: header.machine for name, header in headers.items()},
        trials=tuple(_trial(setting, kept.get(setting.key), running) for setting in settings),
    )


def _lines(path: Path) -> list[Header | Kept]:
    """Lines of a log, which another process may be writing: a damaged last line is left out."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {shortened(path)}: {error.strerror}; {FORMAT.remedy}") from None
    try:
        return [FORMAT.lines.decode(line) for line in content.split(b"\n")[:-1]]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shortened(path)} is no log of a sweep: {first_line(error)}; {FORMAT.remedy}") from None


def _trial(setting: Setting, kept: Kept | None, running: Setting | None) -> Trial:
    if kept is None:
        return Trial(setting=setting, state="running" if setting == running else "waiting")
    return Trial(setting=setting, state="done" if kept.outcome else "refused", outcome=kept.outcome, reason=kept.reason)

"""Sweeps: the settings of a grid are measured into the logs of its shards, with the same runner and summary as `dynatui
bench speed`, and all logs in a folder are reported, as `--json` writes it and as text.

Plain decoding, decoding with the reference parameters, and decoding with the setting take turns on each prompt.

The text is at most 80 columns wide unless a heat map is wider. Heat maps show speed over two axes, one map for each
text length; if the grid has further axes, a cell shows the best setting over all values on these axes.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import torch
from msgspec import structs

from decoder.engine import Engine
from decoder.errors import DeviceError, require, shortened
from decoder.models.heads import require_whole_draft
from decoder.models.text import encode_prompts
from decoder.run.loading import load_pair
from dynatui.lab.bench import Done, Note, Progress, Show, differing, interrupted, pair_names
from dynatui.lab.bench.contenders import BASELINE, own
from dynatui.lab.bench.machine import Machine, source_commit
from dynatui.lab.bench.protocol import Experiment, disturbed, endless, measured, warmed_up
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog, begun, opened
from dynatui.lab.bench.spaces import LENGTH, SPACES, GridPoint, Number, Shard, SweepRequest
from dynatui.lab.bench.summary import Samples, differences, known, near_tie_judge, rows
from dynatui.lab.frame import Median
from dynatui.lab.tables import Column, Spec, Table, cut, hundredths, interval, of_rows, percent, text
from dynatui.session import Models

LOG_SCHEMA = 1
SCHEMA = 2
BEST = 10
REASONS = 5
"""Maximum number of settings without a speed that are listed with their reasons."""
CELL = 7
MARKS = "speed relative to ar; * best, ! no speed, . not yet measured"
SETTING, REFERENCE = "setting", "reference"
TIES = {None: "one text is shorter", True: "a near tie", False: "no tie"}


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


class Kept(msgspec.Struct, frozen=True, kw_only=True, tag="setting"):
    """Line of a log: the key of a setting, and the setting's result or the reason why it has no speed."""

    key: str
    outcome: Outcome | None = None
    reason: str | None = None


Header: TypeAlias = LogHeader[SweepRequest, None]
FORMAT: LogFormat[Header, Kept] = LogFormat(
    msgspec.json.Decoder(Header | Kept), LOG_SCHEMA, "set --output to another folder"
)


State: TypeAlias = Literal["waiting", "done", "refused"]


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
    logs = {path.stem: RecordLog(path, FORMAT) for path in sorted(folder.glob("sweep-*-of-*.jsonl"))}
    headers = {name: log.header for name, log in logs.items() if log.header}
    require(bool(headers), f"{shortened(folder)} holds no sweep; run a sweep first, or set --output to its folder")
    request = next(iter(headers.values())).request
    for name, header in headers.items():
        other = differing(header.request, request)
        require(
            not other,
            f"{name}.jsonl in {shortened(folder)} is of another sweep, with other values of {', '.join(other)}; move "
            "the logs of each sweep to a folder of their own",
        )
    kept = {record.key: record for log in logs.values() for record in log.records}

    def state(setting: GridPoint) -> SettingState:
        known = kept.get(setting.key, Kept(key=setting.key))
        name: State = "done" if known.outcome else "refused" if known.reason else "waiting"
        return SettingState(setting=setting, state=name, outcome=known.outcome, reason=known.reason)

    return SweepReport(
        folder=str(folder),
        request=request,
        machines={name: header.machine for name, header in headers.items()},
        trials=tuple(map(state, request.settings)),
    )


Measure = Callable[[GridPoint], Kept]


def measure_sweep(
    models: Models, request: SweepRequest, folder: Path, shard: Shard, note: Note, show: Show = iter
) -> Done[SweepReport]:
    """Measures the settings of a shard that are not in the shard's log; the report covers all logs in the folder."""
    with opened(folder / f"{shard.name}.jsonl", FORMAT) as log:
        asked, device, measure = ready(models, request, note)
        begun(log, asked, device, lambda: None, commit=source_commit())
        early = interrupted(show(_steps(log, shard.of(asked.settings, asked.seed), measure, note)))
    return Done(read(folder), early)


def _steps(
    log: RecordLog[Header, Kept], settings: Sequence[GridPoint], measure: Measure, note: Note
) -> Iterator[Progress]:
    """Measures the settings that are not in the log; the progress is the decoded share of the shard's new tokens."""
    known = {kept.key for kept in log.records}
    note(f"{len(known)} of {len(settings)} settings are measured")
    done = sum(setting.length for setting in settings if setting.key in known)
    for setting in (each for each in settings if each.key not in known):
        log.add(measure(setting))
        count, done = f"{len(log.records)} of {len(settings)}", done + setting.length
        note(f"{count}: {summary(log.records[-1])}")
        yield Progress(f"{count} settings", done / sum(each.length for each in settings))


def ready(models: Models, request: SweepRequest, note: Note) -> tuple[SweepRequest, torch.device, Measure]:
    """Loads the target and draft and checks that the longest text fits into their context; returns the request with
    the names of the pair, the target's device, and the function that measures one setting.
    """
    require_whole_draft("dynatui bench sweep", models.target, models.draft)
    engine = endless(load_pair(**vars(models), report=note))
    pair = engine.pair
    asked = structs.replace(request, **pair_names(pair))
    longest = max(setting.length for setting in asked.settings)
    prompts = encode_prompts(pair.tokenizer, asked.prompts, longest, pair.context, limit=pair.limit)
    return asked, pair.target.device, lambda setting: compared(engine, asked, prompts, setting)


def compared(engine: Engine, request: SweepRequest, prompts: Sequence[Sequence[int]], setting: GridPoint) -> Kept:
    """Measures one setting against plain decoding (`ar`) and the reference parameters.

    The setting has no speed if its trees do not fit in memory, if one of its texts differs from the text of `ar`
    without a near tie of two logits, or if its texts differ from `ar` on all prompts.
    """
    (plain, config), method = request.configs(setting), SPACES[request.space].method
    contenders = [
        own(BASELINE, BASELINE, BASELINE, config),
        own(REFERENCE, REFERENCE, method, plain),
        own(SETTING, SETTING, method, config),
    ]
    plan = Experiment(contenders, prompts, prompts[:1], request.repeats, request.seed)
    try:
        warmed_up(engine, plan, lambda _: None)
        samples = Samples(measured(engine, plan, plan.turns()), contenders)
    except DeviceError as error:
        return Kept(key=setting.key, reason=str(error))
    differing = [each for each in differences(samples, near_tie_judge(engine, prompts)) if each.name == SETTING]
    faults = [each for each in differing if not each.near_tie]
    if faults or len(differing) == len(prompts):
        first = (faults or differing)[0]
        place = f"the text of prompt {first.prompt + 1} first differs from that of ar at token {first.index}"
        return Kept(key=setting.key, reason=f"{place}: {TIES[first.near_tie]}")
    outcome = _outcome(samples, request.seed, len(differing))
    return Kept(key=setting.key, outcome=outcome, reason=None if outcome else "the texts are too short to be timed")


def _outcome(samples: Samples, seed: int, near_ties: int) -> Outcome | None:
    row = next(row for row in rows(samples, seed, None) if row.name == SETTING)
    if row.over_ar is None or row.tokens_per_second is None or row.tokens_per_round is None or row.round_ms is None:
        return None
    mine = samples.frame[samples.frame.lane == SETTING].groupby("prompt")[["acceptance_rate", "drafted", "rounds"]]
    middle = mine.median().median()
    return Outcome(
        speed=row.over_ar,
        over_reference=samples.ratio(SETTING, REFERENCE, seed),
        tokens_per_second=row.tokens_per_second.value,
        tokens_per_round=row.tokens_per_round,
        acceptance_rate=known(middle.acceptance_rate),
        nodes_per_round=float(middle.drafted),
        rounds=float(middle.rounds),
        round_ms=row.round_ms,
        disturbed=disturbed(turn.waited for turn in samples.all()),
        near_ties=near_ties,
    )


def summary(kept: Kept) -> str:
    return f"{kept.key}: {f'x ar {interval(kept.outcome.speed, hundredths)}' if kept.outcome else kept.reason}"


def on_sweep(report: SweepReport) -> str:
    maps = [text(heat_map(report, length)) for length in report.request.axes[LENGTH]]
    parts = ["\n".join(map(cut, _heading(report))), *maps, "\n".join(_legend(report)), _best(report), _refused(report)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _heading(report: SweepReport) -> list[str]:
    request, settled = report.request, sum(trial.state != "waiting" for trial in report.trials)
    return [
        f"{settled} of {len(report.trials)} settings of {request.space} are finished; {report.folder}",
        f"{request.target} with {request.draft} on {request.device} in {request.dtype}, greedy, end of text ignored",
        f"prompts: {len(request.prompts)}; repeats: {request.repeats}; seed: {request.seed}",
        *(
            f"{name}: {machine.accelerator or machine.processor}, {machine.cores} cores"
            for name, machine in report.machines.items()
        ),
        f"reference: {', '.join(f'{name} {value}' for name, value in request.reference.items())}",
        "each setting is timed beside ar and the reference; 95 % bootstrap intervals",
    ]


def heat_map(report: SweepReport, length: Number) -> Table:
    """Speeds of all settings with texts of this length, by the values on the first two axes."""
    (down, rows), (across, columns), *_ = report.request.axes.items()
    groups: dict[tuple[Number, Number], list[SettingState]] = {}
    for trial in report.trials:
        values = trial.setting.values
        if values[LENGTH] == length:
            groups.setdefault((values[down], values[across]), []).append(trial)
    names, best = [f"{row:g}" for row in rows], report.best(1)
    return Table(
        title=f"{LENGTH}={length}, {across} across",
        columns=(
            Column(down, width=max(map(len, (down, *names))) + 1),
            *(Column(f"{column:g}", width=CELL) for column in columns),
        ),
        rows=tuple(
            (name, *(_cell(groups.get((row, column), ()), best) for column in columns))
            for name, row in zip(names, rows, strict=True)
        ),
    )


def _cell(trials: Sequence[SettingState], best: Sequence[SettingState]) -> str:
    """Highest speed of the settings of one cell, or their state, in at most five characters; empty without settings."""
    if not trials:
        return ""
    speed = max((trial.speed for trial in trials if trial.speed is not None), default=None)
    unknown = "." if any(trial.state == "waiting" for trial in trials) else "!"
    return (unknown if speed is None else hundredths(speed)) + "*" * any(trial in best for trial in trials)


def _legend(report: SweepReport) -> list[str]:
    hidden = [name for name in tuple(report.request.axes)[2:] if name != LENGTH]
    return [MARKS, *[f"each cell shows the best setting among all values of {' and '.join(hidden)}"] * bool(hidden)]


def _best(report: SweepReport) -> str:
    outcomes = [(trial.setting.key, trial.outcome) for trial in report.best(BEST) if trial.outcome]
    if not outcomes:
        return ""
    specs: list[Spec[tuple[str, Outcome]]] = [
        (Column("", width=max(len(key) for key, _ in outcomes)), lambda row: row[0]),
        (Column("x ar", width=15), lambda row: interval(row[1].speed, hundredths)),
        (Column("x ref.", "number", 2, 7), lambda row: row[1].over_reference and row[1].over_reference.value),
        (Column("L-bar", "number", 2, 6), lambda row: row[1].tokens_per_round),
        (Column("acc. %", "number", 1, 7), lambda row: percent(row[1].acceptance_rate)),
        (Column("nodes", "number", 1, 6), lambda row: row[1].nodes_per_round),
        (Column("ms", "number", 2, 7), lambda row: row[1].round_ms),
        (Column("rounds", "number", 0, 7), lambda row: row[1].rounds),
    ]
    notes = (
        "medians over prompts; nodes and ms are per round, rounds per text",
        "the best of many settings seems faster than it is: measure it again",
    )
    done = [trial.outcome for trial in report.trials if trial.outcome]
    return text(of_rows(specs, outcomes, notes=(*notes, *_doubts(done))))


def _doubts(outcomes: Sequence[Outcome]) -> Iterator[str]:
    if disturbed := sum(outcome.disturbed for outcome in outcomes):
        yield f"{disturbed} turns were disturbed by other processes, such as other shards"
    if tied := sum(outcome.near_ties for outcome in outcomes):
        yield f"{tied} texts differ from the text of ar by a near tie and have no speed"


def _refused(report: SweepReport) -> str:
    lines = [f"{trial.setting.key}: {trial.reason}" for trial in report.trials if trial.state == "refused"]
    more = [f"and {len(lines) - REASONS} more"] * (len(lines) > REASONS)
    return "\n".join(["Settings without a speed:", *lines[:REASONS], *more]) if lines else ""

"""A small sweep: its request, results, trials, reports and logs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dynatui.lab.bench.record_log import LogHeader, opened
from dynatui.lab.bench.sweep.report import FORMAT, LOG_SCHEMA, Kept, Outcome, SettingState, SweepReport
from dynatui.lab.bench.sweep.spaces import Shard, SweepRequest
from dynatui.lab.frame import Median
from tests.lab.bench.makers import MACHINE, PAIR

AXES = {"D": (3, 4), "B": (2, 3), "tau": (0.01, 0.05), "T": (100, 200)}


def request(**changes: Any) -> SweepRequest:
    given: dict[str, Any] = {
        "space": "fixed",
        "axes": AXES,
        "reference": {"depth": 5},
        "prompts": ("The tree grows",),
        "repeats": 1,
    }
    return SweepRequest(**PAIR | given | changes)


SMALL = request()


def outcome(speed: float = 1.5, **changes: Any) -> Outcome:
    given: dict[str, Any] = {
        "speed": Median(value=speed, low=speed - 0.1, high=speed + 0.1),
        "over_reference": Median(value=1.0, low=None, high=None),
        "tokens_per_second": 200.0,
        "tokens_per_round": 3.0,
        "acceptance_rate": 0.5,
        "nodes_per_round": 4.0,
        "rounds": 30.0,
        "round_ms": 5.0,
        "disturbed": 0,
    }
    return Outcome(**given | changes)


def done(number: int, speed: float, question: SweepRequest = SMALL) -> SettingState:
    """A measured setting of the grid."""
    return SettingState(setting=question.settings[number], state="done", outcome=outcome(speed))


def report(trials: Sequence[SettingState] = (), question: SweepRequest = SMALL) -> SweepReport:
    """A report of these trials; all other settings are waiting."""
    known = {trial.setting.key: trial for trial in trials}
    return SweepReport(
        folder="results",
        request=question,
        machines={"sweep-1-of-1": MACHINE},
        trials=tuple(known.get(each.key, SettingState(setting=each, state="waiting")) for each in question.settings),
    )


def logged(
    folder: Path, question: SweepRequest, results: Mapping[str, Outcome | str], shard: Shard | None = None
) -> Path:
    """Appends these results by key to a shard's log, as a sweep does; a text is the reason for no speed."""
    path = folder / f"{(shard or Shard()).name}.jsonl"
    with opened(path, FORMAT) as log:
        log.begin(LogHeader(schema=LOG_SCHEMA, started_at="", machine=MACHINE, request=question, costs=None))
        for key, result in results.items():
            log.add(Kept(key=key, **{"reason" if isinstance(result, str) else "outcome": result}))  # type: ignore[arg-type]
    return path

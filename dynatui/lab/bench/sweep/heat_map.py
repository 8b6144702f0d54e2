"""Heat maps of a sweep: speed over two axes, one table for each text length.

If the grid has further axes, a cell shows the best setting over all values on these axes.
"""

from collections.abc import Sequence

from dynatui.lab.bench.sweep.report import SweepReport, Trial
from dynatui.lab.bench.sweep.spaces import LENGTH, Number
from dynatui.lab.tables.data import Column, Table

WIDTH = 7
_MARKS = "speed relative to ar; * best, ! no speed, . not yet measured"


def legend(report: SweepReport) -> list[str]:
    hidden = [name for name in tuple(report.request.axes)[2:] if name != LENGTH]
    return [_MARKS, *[f"each cell shows the best setting among all values of {' and '.join(hidden)}"] * bool(hidden)]


def heat_maps(report: SweepReport) -> list[Table]:
    return [_map(report, length) for length in report.request.axes[LENGTH]]


def _map(report: SweepReport, length: Number) -> Table:
    (down, rows), (across, columns), *_ = report.request.axes.items()
    groups: dict[tuple[Number, Number], list[Trial]] = {}
    for trial in report.trials:
        values = trial.setting.values
        if values[LENGTH] == length:
            groups.setdefault((values[down], values[across]), []).append(trial)
    names = [f"{row:g}" for row in rows]
    return Table(
        title=f"{LENGTH}={length}, {across} across",
        columns=(
            Column(down, width=max(map(len, (down, *names))) + 1),
            *(Column(f"{column:g}", width=WIDTH) for column in columns),
        ),
        rows=tuple(
            (name, *(cell(groups.get((row, column), ()), report.best(1)) for column in columns))
            for name, row in zip(names, rows, strict=True)
        ),
    )


def cell(trials: Sequence[Trial], best: Sequence[Trial]) -> str:
    """Highest speed of these settings, or their state, in at most five characters; empty if the grid has none."""
    if not trials:
        return ""
    speed = max((trial.speed for trial in trials if trial.speed is not None), default=None)
    unknown = "." if any(trial.state == "waiting" for trial in trials) else "!"
    return (unknown if speed is None else f"{speed:.2f}") + "*" * any(trial in best for trial in trials)

"""A sweep as maps of two axes, one for each length; where there are more axes, a cell has the best of the others.

Only what stands where: how it is drawn is decided elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.bench.sweep.report import SweepReport, Trial
from decoder.bench.sweep.spaces import LENGTH, Number

_MARKS = "speeds over ar's; * the best, + being measured, ! without a speed, . to come"


@dataclass(frozen=True)
class Cell:
    """What is known of the settings at one place."""

    speed: float | None
    """The best over ar; None: nothing is known."""
    best: bool
    """Whether it is the best of all maps."""
    running: bool
    waiting: bool
    exists: bool
    """Whether any setting belongs here."""

    @property
    def text(self) -> str:
        """In at most six characters, which tell all without a colour."""
        if not self.exists:
            return ""
        value = "" if self.speed is None else f"{self.speed:.2f}"
        unknown = "" if self.running else "." if self.waiting else "!"
        return (value or unknown) + "*" * self.best + "+" * self.running


@dataclass(frozen=True)
class HeatMap:
    """One length."""

    title: str
    """T=256."""
    rows: str
    """The axis down, and the next across."""
    columns: str
    heads: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]
    """Each row's value, and its cells."""


def legend(report: SweepReport) -> list[str]:
    """What the cells mean, in lines."""
    hidden = [name for name in tuple(report.request.axes)[2:] if name != LENGTH]
    return [_MARKS, f"each cell has the best of {' and '.join(hidden)}"] if hidden else [_MARKS]


def heat_maps(report: SweepReport) -> list[HeatMap]:
    """A map for each length."""
    down, across = tuple(report.request.axes)[:2]
    return [_map(report, down, across, length) for length in report.request.axes[LENGTH]]


def extremes(maps: Sequence[HeatMap]) -> tuple[float, float] | None:
    """The lowest and the highest speed of all maps; None where there is none."""
    speeds = [cell.speed for each in maps for _, cells in each.lines for cell in cells if cell.speed is not None]
    return (min(speeds), max(speeds)) if speeds else None


def _map(report: SweepReport, down: str, across: str, length: Number) -> HeatMap:
    axes, best = report.request.axes, report.best(1)
    here = [trial for trial in report.trials if trial.setting.values[LENGTH] == length]

    def cell(row: Number, column: Number) -> Cell:
        return _cell([t for t in here if (t.setting.values[down], t.setting.values[across]) == (row, column)], best)

    return HeatMap(
        title=f"{LENGTH}={length}",
        rows=down,
        columns=across,
        heads=tuple(f"{column:g}" for column in axes[across]),
        lines=tuple((f"{row:g}", tuple(cell(row, column) for column in axes[across])) for row in axes[down]),
    )


def _cell(trials: Sequence[Trial], best: Sequence[Trial]) -> Cell:
    return Cell(
        speed=max((trial.speed for trial in trials if trial.speed is not None), default=None),
        best=any(trial in best for trial in trials),
        running=any(trial.state == "running" for trial in trials),
        waiting=any(trial.state == "waiting" for trial in trials),
        exists=bool(trials),
    )

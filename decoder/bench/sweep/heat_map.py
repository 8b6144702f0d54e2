"""Maps of a sweep over two axes, one for each length; over further axes, a cell shows the best setting.

Decides content and place only, not how maps are drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.bench.sweep.report import SweepReport, Trial
from decoder.bench.sweep.spaces import LENGTH, Number

_MARKS = "speeds over ar's; * the best, + being measured, ! without a speed, . to come"


@dataclass(frozen=True)
class Cell:
    """Settings at one place of a map."""

    speed: float | None
    """Best speed over ar; None where unknown."""
    best: bool
    """Whether it is the best setting of all maps."""
    running: bool
    waiting: bool
    exists: bool
    """Whether the grid has a setting here."""

    @property
    def text(self) -> str:
        """Speed and state in at most six characters, readable without colour."""
        if not self.exists:
            return ""
        value = "" if self.speed is None else f"{self.speed:.2f}"
        unknown = "" if self.running else "." if self.waiting else "!"
        return (value or unknown) + "*" * self.best + "+" * self.running


@dataclass(frozen=True)
class HeatMap:
    """Map of one length."""

    title: str
    """Title, such as T=256."""
    rows: str
    """Axis of the rows; the next field is the axis of the columns."""
    columns: str
    heads: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]
    """(value, cells) of each row."""


def legend(report: SweepReport) -> list[str]:
    """Legend of the cells, in lines."""
    hidden = [name for name in tuple(report.request.axes)[2:] if name != LENGTH]
    return [_MARKS, f"each cell has the best of {' and '.join(hidden)}"] if hidden else [_MARKS]


def heat_maps(report: SweepReport) -> list[HeatMap]:
    """One map for each length."""
    down, across = tuple(report.request.axes)[:2]
    return [_map(report, down, across, length) for length in report.request.axes[LENGTH]]


def extremes(maps: Sequence[HeatMap]) -> tuple[float, float] | None:
    """Lowest and highest speed of all maps; None where no speed is known."""
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

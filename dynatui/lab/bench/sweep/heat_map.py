"""Heat maps of a sweep: speed over two axes, one map for each text length.

If the grid has further axes, a cell shows the best setting over all values on these axes. This module computes the
content of the cells and does not paint them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dynatui.lab.bench.sweep.report import SweepReport, Trial
from dynatui.lab.bench.sweep.spaces import LENGTH, Number

_MARKS = "speed relative to ar; * best, + being measured, ! no speed, . not yet measured"


@dataclass(frozen=True)
class Cell:
    """Cell of a heat map: all settings with the values of its row and column."""

    speed: float | None
    """Highest speed of the cell's settings, relative to plain decoding; None if no setting has a speed."""
    best: bool
    """Whether the cell contains the fastest setting of the entire sweep."""
    running: bool
    waiting: bool
    exists: bool
    """Whether the grid contains a setting with the values of this row and column."""

    @property
    def text(self) -> str:
        """Speed and state of the cell in at most six characters; no information is given by colour alone."""
        if not self.exists:
            return ""
        value = "" if self.speed is None else f"{self.speed:.2f}"
        unknown = "" if self.running else "." if self.waiting else "!"
        return (value or unknown) + "*" * self.best + "+" * self.running


@dataclass(frozen=True)
class HeatMap:
    """Heat map of all settings with one text length."""

    title: str
    """Title of the map, such as T=256."""
    rows: str
    """Name of the axis whose values are the rows; `columns` is the name of the axis whose values are the columns."""
    columns: str
    heads: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]
    """Rows of the map; for each row, the value on the axis `rows` and the cells."""


def legend(report: SweepReport) -> list[str]:
    """Legend of the cells, as lines of text."""
    hidden = [name for name in tuple(report.request.axes)[2:] if name != LENGTH]
    return (
        [_MARKS, f"each cell shows the best setting among all values of {' and '.join(hidden)}"] if hidden else [_MARKS]
    )


def heat_maps(report: SweepReport) -> list[HeatMap]:
    """Heat maps of the sweep, one for each text length."""
    down, across = tuple(report.request.axes)[:2]
    return [_map(report, down, across, length) for length in report.request.axes[LENGTH]]


def extremes(maps: Sequence[HeatMap]) -> tuple[float, float] | None:
    """Lowest and highest speed in all maps; None if no setting has a speed."""
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

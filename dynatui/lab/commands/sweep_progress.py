"""Shows progress of a sweep on standard error: as a heat map on a terminal, otherwise as lines.

Reads no log: its caller passes reports.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dynatui.lab.bench.sweep.heat_map import Cell, HeatMap, extremes, heat_maps, legend
from dynatui.lab.bench.sweep.report import SweepReport, Trial
from dynatui.lab.bench.sweep.table import summary
from dynatui.lab.commands.time_left import left_s, words
from dynatui.terminal import streams

SHADES = ("grey35", "blue", "cyan", "green", "yellow", "bright_yellow")
"""Colours of the heat map, from the slowest setting to the fastest."""


class SweepDisplay:
    """Shows reports as they arrive, and the remaining time, which is estimated from the pace since the first report."""

    def __init__(self, say: Callable[[str], None] = streams.say) -> None:
        self._say = say
        self._live: Live | None = None
        self._began = time.monotonic()
        self._first: SweepReport | None = None
        self._printed: set[str] = set()

    def shown(self) -> AbstractContextManager[object]:
        """Context in which the heat map is shown on standard error, if standard error is a terminal."""
        console = Console(stderr=True)
        if not console.is_terminal or console.is_dumb_terminal:
            return nullcontext()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        return self._live

    def update(self, report: SweepReport) -> None:
        """Shows the progress that a report contains."""
        if self._first is None:
            self._first, self._printed = report, {trial.setting.key for trial in report.trials if trial.settled}
            self._say(f"{report.settled} of {len(report.trials)} settings of {report.request.space} are measured")
        if self._live is not None:
            self._live.update(drawn(report, self._left(report)), refresh=True)
        else:
            self._print_new(report)

    def _print_new(self, report: SweepReport) -> None:
        """Prints a line for each newly measured setting."""
        new = [trial for trial in report.trials if trial.settled and trial.setting.key not in self._printed]
        for number, trial in enumerate(new, len(self._printed) + 1):
            self._say(f"{number} of {len(report.trials)}: {summary(trial)}{self._left(report)}")
        self._printed |= {trial.setting.key for trial in new}

    def _left(self, report: SweepReport) -> str:
        first = report.share if self._first is None else self._first.share
        left = left_s(first, report.share, time.monotonic() - self._began)
        return "" if left is None or report.complete else f", {words(left)} left"


def drawn(report: SweepReport, left: str) -> RenderableType:
    """The settings being measured, the best setting so far, and the heat maps; a short terminal cuts off the last
    lines.
    """
    maps = heat_maps(report)
    ends = extremes(maps) or (0.0, 0.0)
    state = f"{report.settled} of {len(report.trials)} settings of {report.request.space}{left}"
    lines = [Text(line) for line in (state, *map(_measuring, _running(report)), *_best(report), *legend(report))]
    return Group(*lines, Columns([_table(each, ends) for each in maps], padding=(0, 2)))


def _running(report: SweepReport) -> list[Trial]:
    return [trial for trial in report.trials if trial.state == "running"]


def _measuring(trial: Trial) -> str:
    return f"measuring {trial.setting.key}"


def _best(report: SweepReport) -> list[str]:
    return [f"best so far {summary(trial)}" for trial in report.best(1)]


def _table(heat_map: HeatMap, ends: tuple[float, float]) -> Table:
    title = f"{heat_map.title}, {heat_map.columns} across"
    table = Table(title=title, title_justify="left", min_width=len(title), box=None, padding=(0, 1))
    table.add_column(heat_map.rows)
    for head in heat_map.heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row, cells in heat_map.lines:
        table.add_row(row, *(_cell(cell, ends) for cell in cells))
    return table


def _cell(cell: Cell, ends: tuple[float, float]) -> Text:
    low, high = ends
    if cell.speed is None:
        return Text(cell.text)
    share = (cell.speed - low) / (high - low) if high > low else 1.0
    shade = SHADES[round(share * (len(SHADES) - 1))]
    return Text(cell.text, style=f"bold reverse {shade}" if cell.best else shade)

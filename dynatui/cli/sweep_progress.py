"""How far a sweep has come, on standard error: a heat map that is drawn over where it is a terminal, else lines.

Knows no database: it is handed what that holds.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from decoder.bench.sweep.heat_map import Cell, HeatMap, extremes, heat_maps, legend
from decoder.bench.sweep.report import SweepReport, Trial
from decoder.bench.sweep.table import summary
from dynatui.cli.time_left import left_s, words
from dynatui.terminal import streams

SHADES = ("grey35", "blue", "cyan", "green", "yellow", "bright_yellow")
"""From the slowest to the fastest; the numbers say the same."""


class Progress:
    """Shows reports as they come; the time left follows from how much is done since the first."""

    def __init__(self, say: Callable[[str], None] = streams.say) -> None:
        self._say = say
        self._live: Live | None = None
        self._began = time.monotonic()
        self._first: SweepReport | None = None
        self._told: set[str] = set()

    def shown(self) -> AbstractContextManager[object]:
        """Within, the heat map stands on the terminal, where there is one."""
        console = Console(stderr=True)
        if not console.is_terminal or console.is_dumb_terminal:
            return nullcontext()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        return self._live

    def update(self, report: SweepReport) -> None:
        """Shows what is known now."""
        if self._first is None:
            self._first, self._told = report, {trial.setting.key for trial in report.trials if trial.settled}
            self._say(f"{report.study}: {report.settled} of {len(report.trials)} settings are measured")
        if self._live is not None:
            self._live.update(drawn(report, self._left(report)), refresh=True)
        else:
            self._tell(report)

    def _tell(self, report: SweepReport) -> None:
        """A line for each setting that is new."""
        new = [trial for trial in report.trials if trial.settled and trial.setting.key not in self._told]
        for number, trial in enumerate(new, len(self._told) + 1):
            self._say(f"{number} of {len(report.trials)}: {summary(trial)}{self._left(report)}")
        self._told |= {trial.setting.key for trial in new}

    def _left(self, report: SweepReport) -> str:
        first = report.share if self._first is None else self._first.share
        left = left_s(first, report.share, time.monotonic() - self._began)
        return "" if left is None or report.complete else f", {words(left)} left"


def drawn(report: SweepReport, left: str) -> RenderableType:
    """What is measured now, what was best so far, and the heat maps: a terminal that is too short cuts off its end."""
    maps = heat_maps(report)
    ends = extremes(maps) or (0.0, 0.0)
    state = f"{report.study}: {report.settled} of {len(report.trials)} settings{left}"
    lines = [Text(line) for line in (state, *map(_held, _running(report)), *_best(report), *legend(report))]
    return Group(*lines, Columns([_table(each, ends) for each in maps], padding=(0, 2)))


def _running(report: SweepReport) -> list[Trial]:
    return [trial for trial in report.trials if trial.state == "running"]


def _held(trial: Trial) -> str:
    return f"measuring {trial.setting.key} ({trial.worker})"


def _best(report: SweepReport) -> list[str]:
    return [f"best so far {summary(trial)}" for trial in report.best(1)]


def _table(found: HeatMap, ends: tuple[float, float]) -> Table:
    title = f"{found.title}, {found.columns} across"
    table = Table(title=title, title_justify="left", min_width=len(title), box=None, padding=(0, 1))
    table.add_column(found.rows)
    for head in found.heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row, cells in found.lines:
        table.add_row(row, *(_cell(cell, ends) for cell in cells))
    return table


def _cell(cell: Cell, ends: tuple[float, float]) -> Text:
    low, high = ends
    if cell.speed is None:
        return Text(cell.text)
    share = (cell.speed - low) / (high - low) if high > low else 1.0
    shade = SHADES[round(share * (len(SHADES) - 1))]
    return Text(cell.text, style=f"bold reverse {shade}" if cell.best else shade)

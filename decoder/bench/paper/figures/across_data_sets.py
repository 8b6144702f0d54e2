"""Bars of methods on all data sets: the paper's main results, and its first version's comparison of data sets."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decoder.bench.paper.figures.cells import (
    SPEED,
    SPEEDUP,
    Lanes,
    data_sets,
    early,
    label,
    lanes_of,
    longest,
    longest_prompts,
    paper_lanes,
    stat_of,
)
from decoder.bench.paper.figures.marks import above_bars, bars, level
from decoder.bench.paper.figures.note import sign
from decoder.bench.paper.figures.style import DATA_SET_COLOURS, HATCHES, name_axes, printable, sheet
from decoder.bench.paper.report import Cell, PaperReport

BarCells = Mapping[str, Sequence[Cell]]
"""By data set."""


def main_results_bars(report: PaperReport) -> Figure | None:
    """Speed and speed-up of the paper's four methods, of the longest texts."""
    cells = _main(report, longest)
    lanes = _timed(paper_lanes(report, _all(cells)), cells)
    if not lanes:
        return None
    figure, ((left, right),) = sheet(1, 2, width=10, height=4.2)
    _speeds(report, left, right, lanes, cells)
    return sign(figure, report, _of(lanes, cells))


def dataset_comparison(report: PaperReport) -> Figure | None:
    """The same of every lane, of texts of the length of the first version."""
    cells = _main(report, early)
    lanes = _timed(lanes_of(report, _all(cells)), cells)
    if not lanes:
        return None
    figure, ((upper,), (lower,)) = sheet(2, 1, width=11, height=8)
    _speeds(report, upper, lower, lanes, cells)
    for axes in (upper, lower):
        axes.tick_params(axis="x", labelrotation=30)
        for written in axes.texts:
            written.set_rotation(90)
        for name in axes.get_xticklabels():
            name.set_horizontalalignment("right")
            name.set_rotation_mode("anchor")
    return sign(figure, report, _all(cells))


def _speeds(report: PaperReport, first: Axes, second: Axes, lanes: Lanes, cells: BarCells) -> None:
    """One of axes in tokens/s, one in multiples of ar."""
    _grouped(report, first, lanes, cells, SPEED, "{:.0f}")
    _grouped(report, second, lanes, cells, SPEEDUP, "{:.2f}x")
    name_axes(first, title="(a) throughput", x="", y="speed (tokens/s)")
    name_axes(second, title="(b) speed-up", x="", y="speed (x ar)")
    level(second, 1)
    first.legend(loc="upper left", ncols=len(cells))


def _grouped(report: PaperReport, axes: Axes, lanes: Lanes, cells: BarCells, key: str, written: str) -> None:
    """A group of bars a lane, a bar a data set."""
    width = 0.8 / len(cells)
    for number, (name, these) in enumerate(cells.items()):
        found = [(place, stat) for place, lane in enumerate(lanes) if (stat := stat_of(lane, these, key))]
        places = [place + width * (number - (len(cells) - 1) / 2) for place, _ in found]
        stats = [stat for _, stat in found]
        colour, hatch = (each[number % len(each)] for each in (DATA_SET_COLOURS, HATCHES))
        title = printable(report.begun.asked.text_set(name).title)
        bars(axes, places, stats, width * 0.92, color=colour, hatch=hatch, label=title)
        above_bars(axes, places, stats, [written.format(stat.mean) for stat in stats])
    axes.set_xticks(range(len(lanes)), [label(lane) for lane in lanes])
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.6, len(lanes) - 0.4)
    axes.margins(y=0.2)
    axes.set_ylim(bottom=0)


def _main(report: PaperReport, chosen: Callable[[list[Cell]], list[Cell]]) -> BarCells:
    cells = [cell for cell in report.cells if cell.experiment == "main"]
    by_set = {name: [cell for cell in cells if cell.data_set == name] for name in data_sets(report, "main")}
    return {name: chosen(longest_prompts(these)) for name, these in by_set.items()}


def _all(cells: BarCells) -> list[Cell]:
    return [cell for these in cells.values() for cell in these]


def _of(lanes: Lanes, cells: BarCells) -> list[Cell]:
    return [cell for cell in _all(cells) if any(cell.lane == lane.name for lane in lanes)]


def _timed(lanes: Lanes, cells: BarCells) -> Lanes:
    """Those with a speed on some data set."""
    return [lane for lane in lanes if stat_of(lane, [cell for cell in _all(cells) if SPEED in cell.stats], SPEED)]

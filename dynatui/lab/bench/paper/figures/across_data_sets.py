"""Bar charts over all data sets: the paper's main results."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.cells import (
    SPEED,
    SPEEDUP,
    data_sets,
    label,
    longest,
    longest_prompts,
    paper_lanes,
)
from dynatui.lab.bench.paper.figures.marks import above_bars, bars, level
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import DATA_SET_COLOURS, HATCHES, name_axes, printable, sheet
from dynatui.lab.bench.paper.report import Cell, PaperReport
from dynatui.lab.bench.paper.request import Lane

Groups = Sequence[Mapping[str, Cell]]
"""Groups of adjacent bars: each group maps names of data sets to cells that have a speed."""


def main_results_bars(report: PaperReport) -> Figure | None:
    """Speed and speed-up of the paper's four methods on the longest texts; on each data set, a method is shown by its
    fastest lane.
    """
    cells = _main(report)
    by_group: dict[str, dict[str, Cell]] = {}
    for data_set, these in cells.items():
        for lane in paper_lanes(report, these):
            _take(by_group.setdefault(lane.family, {}), data_set, lane, these)
    groups = [group for group in by_group.values() if group]
    if not groups:
        return None
    figure, ((left, right),) = sheet(1, 2, width=10, height=4.2)
    _speeds(report, left, right, groups)
    return sign(figure, report, [cell for group in groups for cell in group.values()])


def _main(report: PaperReport) -> dict[str, list[Cell]]:
    """Cells of the main experiment by data set, with the greatest text length and maximum prompt length."""
    cells = [cell for cell in report.cells if cell.experiment == "main"]
    by_set = {name: [cell for cell in cells if cell.data_set == name] for name in data_sets(report, "main")}
    return {name: longest(longest_prompts(these)) for name, these in by_set.items()}


def _take(group: dict[str, Cell], data_set: str, lane: Lane, cells: Sequence[Cell]) -> None:
    """Adds a lane's cell to a group if the cell has a speed and the group has no cell for the data set yet."""
    for cell in cells:
        if cell.lane == lane.name and SPEED in cell.stats:
            group.setdefault(data_set, cell)


def _speeds(report: PaperReport, first: Axes, second: Axes, groups: Groups) -> None:
    """Draws two panels: speed in tokens/s, and speed relative to plain decoding (`ar`)."""
    _grouped(report, first, groups, SPEED, "{:.0f}")
    _grouped(report, second, groups, SPEEDUP, "{:.2f}x")
    name_axes(first, title="(a) throughput", x="", y="speed (tokens/s)")
    name_axes(second, title="(b) speed-up", x="", y="speed (x ar)")
    level(second, 1)
    # titles of data sets are long, so the legend is above the panels, where it does not reduce their width
    first.figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=4)


def _grouped(report: PaperReport, axes: Axes, groups: Groups, key: str, written: str) -> None:
    """Draws the bars of one panel: a group of bars for each method, with one bar for each data set."""
    shown = [name for name in data_sets(report, "main") if any(name in group for group in groups)]
    width = 0.8 / len(shown)
    for number, name in enumerate(shown):
        right = width * (number - (len(shown) - 1) / 2)
        stats = {place + right: group[name].stats[key] for place, group in enumerate(groups) if name in group}
        colour, hatch = (each[number % len(each)] for each in (DATA_SET_COLOURS, HATCHES))
        title = printable(report.header.request.text_set(name).title)
        places, intervals = list(stats), list(stats.values())
        bars(axes, places, intervals, width * 0.92, color=colour, hatch=hatch, label=title)
        above_bars(axes, places, intervals, [written.format(stat.value) for stat in intervals])
    axes.set_xticks(range(len(groups)), [_title(report, group) for group in groups])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.2)
    axes.set_ylim(bottom=0)


def _title(report: PaperReport, group: Mapping[str, Cell]) -> str:
    """Label of a group: the names of the group's lanes, in the order of the bars. The lanes can differ between data
    sets.
    """
    lanes = (report.header.request.lane(cell.lane) for cell in group.values())
    return "\n".join(dict.fromkeys(map(label, lanes)))

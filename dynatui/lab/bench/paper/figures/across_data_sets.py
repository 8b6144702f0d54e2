"""Bar charts over all data sets: the paper's main results."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.cells import SPEED, SPEEDUP, data_sets, label, paper_lanes
from dynatui.lab.bench.paper.figures.marks import above_bars, bars, level
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import DATA_SET_COLOURS, HATCHES, name_axes, printable, sheet
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.rows import Row, greatest, rows


def main_results_bars(report: PaperReport) -> Figure | None:
    """Speed and speed-up of the paper's four methods on the longest texts; on each data set, a method is shown by its
    fastest lane.
    """
    by_family: dict[str, dict[str, Row]] = {}
    for data_set in data_sets(report, "main"):
        these = greatest(rows(report, "main", data_set), "most", "length")
        for lane in paper_lanes(these):
            row = next(row for row in these if row.lane.name == lane.name)
            if SPEED in row.cell.stats:
                by_family.setdefault(lane.family, {}).setdefault(data_set, row)
    groups = [*by_family.values()]
    if not groups:
        return None
    figure, ((left, right),) = sheet(1, 2, width=10, height=4.2)
    shown = [name for name in data_sets(report, "main") if any(name in group for group in groups)]
    _grouped(left, groups, shown, SPEED, "{:.0f}")
    _grouped(right, groups, shown, SPEEDUP, "{:.2f}x")
    name_axes(left, title="(a) throughput", x="", y="speed (tokens/s)")
    name_axes(right, title="(b) speed-up", x="", y="speed (x ar)")
    level(right, 1)
    # titles of data sets are long, so the legend is above the panels, where it does not reduce their width
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return sign(figure, report, [row for group in groups for row in group.values()])


def _grouped(axes: Axes, groups: Sequence[Mapping[str, Row]], shown: Sequence[str], key: str, written: str) -> None:
    """Draws a group of bars for each method, with one bar for each data set.

    A group's label names its lanes, which can differ between data sets, in the order of the bars.
    """
    width = 0.8 / len(shown)
    for number, name in enumerate(shown):
        right = width * (number - (len(shown) - 1) / 2)
        found = {place + right: group[name] for place, group in enumerate(groups) if name in group}
        places, stats = list(found), [row.cell.stats[key] for row in found.values()]
        colour, hatch = (each[number % len(each)] for each in (DATA_SET_COLOURS, HATCHES))
        title = printable(next(iter(found.values())).text_set.title)
        bars(axes, places, stats, width * 0.92, color=colour, hatch=hatch, label=title)
        above_bars(axes, places, stats, [written.format(stat.value) for stat in stats])
    titles = ["\n".join(dict.fromkeys(label(row.lane) for row in group.values())) for group in groups]
    axes.set_xticks(range(len(groups)), titles)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.2)
    axes.set_ylim(bottom=0)

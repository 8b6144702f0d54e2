"""Figures that compare methods: main results, ablation, and speed-up against the number of verified nodes."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec.structs import replace

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.figures.marks import (
    ACCENT,
    DARK,
    DATA_SET_COLOURS,
    HATCHES,
    LINE_STYLES,
    LineStyle,
    bars,
    confine,
    curve,
    level,
    listed,
    look,
    means,
    name_axes,
    name_points,
    printable,
    right_axis,
    sheet,
    sign,
    ticks_at,
)
from dynatui.lab.bench.paper.published import DYNATREE, FIXED_BACKBONE, PHASE_1, PHASE_2
from dynatui.lab.bench.paper.records import CostCurve
from dynatui.lab.bench.paper.report import (
    SPEED,
    SPEEDUP,
    PaperReport,
    Row,
    data_sets,
    greatest,
    label,
    paper_lanes,
    rows,
    rows_of,
    without,
)

STEPS = (
    (FIXED_BACKBONE, "", LINE_STYLES["fixed"].colour),
    (PHASE_1, "+ breadth", "#ecc5b8"),
    (PHASE_2, "+ depth", "#dc9079"),
    (DYNATREE, "+ history", ACCENT),
)
"""Rows of the paper's ablation, each with the rule that it adds and a colour; the first row is the fixed tree."""


class Stage(NamedTuple):
    """Step of the ablation, shown as a bar of the figure."""

    name: str
    colour: str
    row: Row


def ablation_progression(report: PaperReport) -> Figure | None:
    """Two panels over the steps of the ablation: (a) speed and rounds per text, (b) tokens per round and acceptance."""
    stages = _stages(greatest(rows_of(report, "main"), "most", "length"))
    if len(stages) < 2 or not any(SPEED in stage.row.cell.stats for stage in stages):
        return None
    figure, ((left, right),) = sheet(1, 2, width=10, height=4.2)
    _speed(left, stages)
    _progress(right, stages)
    for axes in (left, right):
        axes.set_xticks(range(len(stages)), [stage.name for stage in stages])
        axes.set_xlim(-0.6, len(stages) - 0.4)
        axes.grid(visible=False, axis="x")
    return sign(figure, report, [stage.row for stage in stages])


def _stages(these: list[Row]) -> list[Stage]:
    """Steps of the ablation before the first missing step; labels of later steps would refer to the missing step."""
    by_name = {row.lane.paper_name: row for row in reversed(these)}
    stages: list[Stage] = []
    for name, adds, colour in STEPS:
        if name not in by_name:
            break
        stages.append(Stage(f"{label(by_name[name].lane)}\n{adds}".strip(), colour, by_name[name]))
    return stages


def _speed(axes: Axes, stages: list[Stage]) -> None:
    timed = [
        (place, stage, stage.row.cell.stats) for place, stage in enumerate(stages) if SPEED in stage.row.cell.stats
    ]
    places, speeds = [place for place, _, _ in timed], [stats[SPEED] for _, _, stats in timed]
    texts = [f"{stats[SPEED].value:.0f} ({stats[SPEEDUP].value:.2f}x)" for _, _, stats in timed]
    bars(axes, places, speeds, 0.6, texts, fontsize=8, color=[stage.colour for _, stage, _ in timed])
    name_axes(axes, title="(a) throughput and rounds", x="", y="speed (tokens/s, bars)")
    axes.set_ylim(0, 1.6 * max(means(speeds)))
    axes.grid(visible=False)
    other = right_axis(axes, "rounds a text (line)")
    _line(other, stages, "rounds", "-", DARK)
    confine(other, 0.75, 1)


def _progress(axes: Axes, stages: list[Stage]) -> None:
    """Draws tokens per round and acceptance; for steps of equal depth, these quantities are nearly proportional."""
    name_axes(axes, title="(b) tokens a round and acceptance", x="", y="L-bar, tokens a round (solid)")
    _line(axes, stages, "tokens_per_round", "-", ACCENT)
    confine(axes, 0.3, 1)
    other = right_axis(axes, "acceptance by the paper's formula (%, dashed)")
    _line(other, stages, "paper_acceptance", "--", DARK, scale=100)
    confine(other, 0, 0.7)


def _line(axes: Axes, stages: list[Stage], key: str, dash: str, colour: str, *, scale: float = 1.0) -> None:
    stats = [stage.row.cell.stats for stage in stages]
    known = [(place, each[key]) for place, each in enumerate(stats) if key in each]
    curve(axes, known, LineStyle(colour, "o" if dash == "-" else "s", dash), "", scale=scale)
    axes.margins(y=0.15)


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

    The label of a group names the lanes of the bars in order, since a method's lanes can differ between data sets.
    """
    width = 0.8 / len(shown)
    for number, name in enumerate(shown):
        right = width * (number - (len(shown) - 1) / 2)
        found = {place + right: group[name] for place, group in enumerate(groups) if name in group}
        places, stats = list(found), [row.cell.stats[key] for row in found.values()]
        colour, hatch = (each[number % len(each)] for each in (DATA_SET_COLOURS, HATCHES))
        title = printable(next(iter(found.values())).text_set.title)
        texts = [written.format(stat.value) for stat in stats]
        bars(axes, places, stats, width * 0.92, texts, color=colour, hatch=hatch, label=title)
    titles = ["\n".join(dict.fromkeys(label(row.lane) for row in group.values())) for group in groups]
    axes.set_xticks(range(len(groups)), titles)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.2)
    axes.set_ylim(bottom=0)


NODES = "nodes_per_round"
MAIN = "main"
EXPERIMENTS = (MAIN, "sensitivity", "fixed_trees")
"""Experiments in order of precedence: results of a lane are from the first of these experiments with the lane."""
COST = LineStyle(DARK, "|", ":")


def speed_against_nodes(report: PaperReport) -> Figure | None:
    """Speed-up over the number of verified nodes, with one point per lane. The right axis shows ms per target pass.

    Lanes of the experiment `main` have their names next to their points.
    """
    by_lane: dict[str, Row] = {}
    for name in EXPERIMENTS:
        for row in greatest(rows_of(report, name), "most", "length"):
            by_lane.setdefault(row.lane.name, row)
    every = [*by_lane.values()]
    shown = [row for row in every if row.cell.stats.keys() >= {SPEEDUP, NODES}]
    if not shown:
        return None
    figure, ((axes,),) = sheet(1, 1, width=10, height=6)
    axes.set_xscale("log", base=2)
    _points(axes, shown)
    _costs(axes, report.header.costs)
    level(axes, 1)
    axes.set_xlim(0.8, 2.2 * max(map(_nodes, shown)))
    ticks_at(axes, list(takewhile(lambda rows: rows < axes.get_xlim()[1], (1 << power for power in range(16)))))
    name_axes(axes, title="", x="verified nodes per round, including the root (logarithmic)", y="speed (x ar)")
    figure.legend(loc="outside upper center", ncols=5)
    sign(figure, report, every, *_remarks(every))
    named = [(label(row.lane), _nodes(row), row.cell.stats[SPEEDUP].value) for row in shown if _is_main(row)]
    name_points(figure, axes, named, list(map(_place, shown)))
    return figure


def _remarks(every: Sequence[Row]) -> list[str]:
    """Remarks on lanes whose number of verified nodes is unknown, and on the meaning of small marks."""
    unknown = [lane for lane in without(every, NODES) if lane not in without(every, SPEED)]
    remarks = [f"number of verified nodes is unknown for: {listed(unknown)}"] if unknown else []
    if not all(map(_is_main, every)):
        remarks.append("small marks: settings of the sensitivity and fixed-tree experiments")
    return remarks


def _is_main(row: Row) -> bool:
    return row.cell.experiment == MAIN


def _nodes(row: Row) -> float:
    """Rows of the target pass per round: the drafted nodes and the root."""
    return row.cell.stats[NODES].value + 1


def _place(row: Row) -> tuple[float, Interval]:
    """Point of a row: nodes, and speed-up with its interval; settings of sweeps have no interval, to avoid clutter."""
    stat = row.cell.stats[SPEEDUP]
    return _nodes(row), stat if _is_main(row) else replace(stat, low=None, high=None)


def _points(axes: Axes, these: Sequence[Row]) -> None:
    """Draws the point of each lane in the style of its family; settings of sweeps have small marks."""
    named: set[str] = set()
    edge: dict[str, Any] = {"linestyle": "", "markeredgecolor": "black", "markeredgewidth": 0.5}
    sizes: dict[bool, dict[str, Any]] = {True: {"markersize": 8, "zorder": 3}, False: {"markersize": 4, "alpha": 0.6}}
    for row in these:
        family = row.lane.family
        curve(axes, [_place(row)], look(family), "" if family in named else family, **edge, **sizes[_is_main(row)])
        named.add(family)


def _costs(axes: Axes, costs: CostCurve) -> None:
    other = right_axis(axes, "time of one target pass over this many rows (ms)")
    seconds = zip(costs.rows, costs.verify_s, strict=True)
    points = [(rows, Interval(value=duration_s * 1000, std=0.0, low=None, high=None)) for rows, duration_s in seconds]
    curve(other, points, COST, "cost (right axis)")
    other.set_ylim(bottom=0)
    axes.set_zorder(other.get_zorder() + 1)  # draws the lanes' points in front of the cost curve
    axes.patch.set_visible(False)

"""Figure of speed-up against the number of verified nodes, with the time of a target pass by number of rows."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec.structs import replace

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.figures.cells import SPEED, SPEEDUP, label, rows_of, without
from dynatui.lab.bench.paper.figures.marks import curve, level, name_points, ticks_at
from dynatui.lab.bench.paper.figures.note import listed, sign
from dynatui.lab.bench.paper.figures.style import DARK, Look, look, name_axes, right_axis, sheet
from dynatui.lab.bench.paper.records import CostCurve
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.rows import Row, greatest

NODES = "nodes_per_round"
MAIN = "main"
EXPERIMENTS = (MAIN, "sensitivity", "fixed_trees")
"""Experiments in order of precedence: if a lane is in several experiments, the first of these gives its results."""
COST = Look(DARK, "|", ":")


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
    """Draws the curve of milliseconds per target pass over rows."""
    other = right_axis(axes, "time of one target pass over this many rows (ms)")
    seconds = zip(costs.rows, costs.verify_s, strict=True)
    points = [(rows, Interval(value=duration_s * 1000, std=0.0, low=None, high=None)) for rows, duration_s in seconds]
    curve(other, points, COST, "cost (right axis)")
    other.set_ylim(bottom=0)
    axes.set_zorder(other.get_zorder() + 1)  # draws the lanes' points in front of the cost curve
    axes.patch.set_visible(False)

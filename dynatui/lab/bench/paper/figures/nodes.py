"""Figure of speed-up against the number of verified nodes, with the time of a target pass by number of rows."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec.structs import replace

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.figures.cells import (
    SPEED,
    SPEEDUP,
    cells_of,
    label,
    lanes_of,
    longest,
    longest_prompts,
    without,
)
from dynatui.lab.bench.paper.figures.marks import curve, level, name_points, ticks_at
from dynatui.lab.bench.paper.figures.note import listed, sign
from dynatui.lab.bench.paper.figures.style import DARK, Look, look, name_axes, right_axis, sheet
from dynatui.lab.bench.paper.records import CostCurve
from dynatui.lab.bench.paper.report import Cell, PaperReport

NODES = "nodes_per_round"
MAIN = "main"
EXPERIMENTS = (MAIN, "sensitivity", "fixed_trees")
"""Experiments in order of precedence: if a lane is in several experiments, the first of these gives its results."""
COST = Look(DARK, "|", ":")


def speed_against_nodes(report: PaperReport) -> Figure | None:
    """Speed-up over the number of verified nodes, with one point per lane. The right axis shows ms per target pass.

    Lanes of the experiment `main` have their names next to their points.
    """
    cells = _one_each([cell for name in EXPERIMENTS for cell in longest(longest_prompts(cells_of(report, name)))])
    shown = [cell for cell in cells if SPEEDUP in cell.stats and NODES in cell.stats]
    if not shown:
        return None
    figure, ((axes,),) = sheet(1, 1, width=10, height=6)
    axes.set_xscale("log", base=2)
    _points(axes, report, shown)
    _costs(axes, report.header.costs)
    level(axes, 1)
    axes.set_xlim(0.8, 2.2 * max(map(_rows, shown)))
    ticks_at(axes, list(takewhile(lambda rows: rows < axes.get_xlim()[1], (1 << power for power in range(16)))))
    name_axes(axes, title="", x="verified nodes per round, including the root (logarithmic)", y="speed (x ar)")
    figure.legend(loc="outside upper center", ncols=5)
    sign(figure, report, cells, *_remarks(report, cells))
    names = {lane.name: label(lane) for lane in lanes_of(report, shown)}
    main = [(names[cell.lane], _rows(cell), cell.stats[SPEEDUP].value) for cell in shown if cell.experiment == MAIN]
    name_points(figure, axes, main, [_place(cell) for cell in shown])
    return figure


def _remarks(report: PaperReport, cells: Sequence[Cell]) -> list[str]:
    """Remarks on lanes whose number of verified nodes is unknown, and on the meaning of small marks."""
    silent = {*without(cells, NODES)}.difference(without(cells, SPEED))
    unknown = [label(lane) for lane in lanes_of(report, cells) if lane.name in silent]
    remarks = [f"number of verified nodes is unknown for: {listed(unknown)}"] if unknown else []
    if any(cell.experiment != MAIN for cell in cells):
        remarks.append("small marks: settings of the sensitivity and fixed-tree experiments")
    return remarks


def _one_each(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell of every lane."""
    by_lane: dict[str, Cell] = {}
    for cell in cells:
        by_lane.setdefault(cell.lane, cell)
    return list(by_lane.values())


def _rows(cell: Cell) -> float:
    """Rows of the target pass per round: the drafted nodes and the root."""
    return cell.stats[NODES].value + 1


def _place(cell: Cell) -> tuple[float, Interval]:
    """Point of a cell: rows, and speed-up with its interval; settings of sweeps have no interval, to avoid clutter."""
    stat = cell.stats[SPEEDUP]
    return _rows(cell), stat if cell.experiment == MAIN else replace(stat, low=None, high=None)


def _points(axes: Axes, report: PaperReport, cells: Sequence[Cell]) -> None:
    """Draws the point of each lane in the style of its family; settings of sweeps have small marks."""
    named: set[str] = set()
    edge: dict[str, Any] = {"linestyle": "", "markeredgecolor": "black", "markeredgewidth": 0.5}
    sizes: dict[bool, dict[str, Any]] = {True: {"markersize": 8, "zorder": 3}, False: {"markersize": 4, "alpha": 0.6}}
    for lane in lanes_of(report, cells):
        cell = next(cell for cell in cells if cell.lane == lane.name)
        text = "" if lane.family in named else lane.family
        named.add(lane.family)
        curve(axes, [_place(cell)], look(lane.family), text, **edge, **sizes[cell.experiment == MAIN])


def _costs(axes: Axes, costs: CostCurve) -> None:
    """Draws the curve of milliseconds per target pass over rows."""
    other = right_axis(axes, "time of one target pass over this many rows (ms)")
    seconds = zip(costs.rows, costs.verify_s, strict=True)
    points = [(rows, Interval(value=duration_s * 1000, std=0.0, low=None, high=None)) for rows, duration_s in seconds]
    curve(other, points, COST, "cost (right axis)")
    other.set_ylim(bottom=0)
    axes.set_zorder(other.get_zorder() + 1)  # draws the lanes' points in front of the cost curve
    axes.patch.set_visible(False)

"""Sensitivity of DynaTree's speed to its thresholds, breadth and depth, like the paper's figure 6.

Each panel varies two parameters, and shows the largest group of lanes that are equal in all other parameters.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.figures.cells import SPEED, fastest, label, lanes_of, rows_of, stat_of
from dynatui.lab.bench.paper.figures.marks import errors, means, write
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import COLOURS_OF_VALUES, look, name_axes, sheet
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.rows import Row, greatest

Pair: TypeAlias = tuple[float, float]
Measured: TypeAlias = Sequence[tuple[Pair, Interval]]
"""Speeds by the values of two parameters, in ascending order of the values."""

UNSURE = "τl: the draft is unsure below this probability"


def parameter_sensitivity(report: PaperReport) -> Figure | None:
    """Three panels of speed: a scatter plot over thresholds, a line over pairs of breadths, and a line over pairs of
    depths.
    """
    these = greatest(rows_of(report, "sensitivity"), "most", "length")
    trees = [row for row in these if row.lane.method == "dynatree" and SPEED in row.cell.stats]
    if not trees:
        return None
    figure, ((left, middle, right),) = sheet(1, 3, width=13, height=4.4)
    _thresholds(figure, left, _pairs(trees, ("tau_h", "tau_l")))
    _line(middle, _pairs(trees, ("branching",)))
    _line(right, _pairs(trees, ("d0", "d_max")))
    for axes in (middle, right):
        _baselines(axes, these)
        axes.margins(y=0.25)
    figure.legend(*middle.get_legend_handles_labels(), loc="outside upper right", ncols=3)
    name_axes(left, title="(a) thresholds", x="τh: the draft is sure at or above this probability", y=UNSURE)
    name_axes(middle, title="(b) breadth", x="(B_min, B_max), children of a node", y="speed (tokens/s)")
    name_axes(right, title="(c) depth", x="(D0, D_max), levels", y="speed (tokens/s)")
    return sign(figure, report, these)


def _pairs(trees: Sequence[Row], varied: tuple[str, ...]) -> Measured:
    """Speeds by the values of two parameters, for the largest group of lanes that are equal in all other parameters."""
    groups: dict[str, dict[Pair, Interval]] = {}
    for row in trees:
        given: Mapping[str, Any] = row.lane.parameters
        others = json.dumps({name: value for name, value in given.items() if name not in varied}, sort_keys=True)
        low, *_, high = given["branching"] if varied == ("branching",) else (given[name] for name in varied)
        groups.setdefault(others, {})[low, high] = row.cell.stats[SPEED]
    return sorted(max(groups.values(), key=len).items())


def _thresholds(figure: Figure, axes: Axes, measured: Measured) -> None:
    """Draws a point for every pair of thresholds; the point's colour and a number show the speed."""
    x, y = [high for (high, _), _ in measured], [low for (_, low), _ in measured]
    speeds = means([stat for _, stat in measured])
    drawn = axes.scatter(x, y, c=speeds, cmap=COLOURS_OF_VALUES, s=130, edgecolors="black", zorder=3)
    for place, speed in zip(zip(x, y, strict=True), speeds, strict=True):
        write(axes, f"{speed:.0f}", place, (0, 11))
    axes.margins(0.15)
    figure.colorbar(drawn, ax=axes, label="speed (tokens/s)")


def _line(axes: Axes, measured: Measured) -> None:
    shown, stats = look("dynatree"), [stat for _, stat in measured]
    places = range(len(measured))
    axes.errorbar(
        places,
        means(stats),
        yerr=errors(stats),
        color=shown.colour,
        marker=shown.mark,
        linestyle=shown.dash,
        label="DynaTree",
    )
    axes.set_xticks(places, [f"({low:g}, {high:g})" for (low, high), _ in measured], rotation=30)
    axes.set_xlim(-0.5, len(measured) - 0.5)


def _baselines(axes: Axes, these: Sequence[Row]) -> None:
    """Draws a dashed line at the speed of plain decoding (`ar`), and a dotted line at the speed of the fixed tree."""
    for method, dash in (("ar", "--"), ("fixed", ":")):
        lane = fastest([lane for lane in lanes_of(these) if lane.method == method], these)
        if lane and (stat := stat_of(lane, these, SPEED)):
            axes.axhline(stat.value, color=look(lane.family).colour, linestyle=dash, label=label(lane))

"""Figures of the experiments that vary text and prompt lengths, fixed trees and DynaTree's parameters."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.figures.marks import (
    ACCENT,
    COLOURS_OF_VALUES,
    curve,
    errors,
    heat_map,
    level,
    look,
    means,
    name_axes,
    sheet,
    sign,
    ticks_at,
    write,
)
from dynatui.lab.bench.paper.report import (
    SPEED,
    SPEEDUP,
    PaperReport,
    Points,
    Row,
    Table,
    fastest,
    greatest,
    label,
    lanes_of,
    paper_lanes,
    points,
    rows_of,
    stat_of,
)


class Panel(NamedTuple):
    """One panel: its titles, and the quantity that it shows."""

    title: str
    y: str
    key: str
    scale: float = 1.0
    drafting: bool = False
    """Whether the panel leaves out plain decoding, which has no draft."""


OVER_LENGTH = (
    Panel("(a) throughput", "speed (tokens/s)", SPEED),
    Panel("(b) tokens a round", "L-bar (tokens)", "tokens_per_round"),
    Panel("(c) tokens a round, mean over prompts", "l-bar (tokens)", "paper_path_length", drafting=True),
    Panel("(d) acceptance", "the paper's formula (%)", "paper_acceptance", 100, drafting=True),
)
OVER_PROMPT_LENGTH = (
    Panel("(a) throughput", "speed (tokens/s)", SPEED),
    Panel("(b) speed-up", "speed (x ar)", SPEEDUP),
)


def length_scaling_fourpanel(report: PaperReport) -> Figure | None:
    """Speed, L-bar, l-bar and acceptance over text length, after the longest prompts."""
    return _drawn(report, greatest(rows_of(report, "main"), "most"), "length", "T, new tokens", OVER_LENGTH, 7)


def prompt_length_sensitivity(report: PaperReport) -> Figure | None:
    """Speed and speed-up of the longest texts, over maximum prompt length."""
    these = greatest(rows_of(report, "prompt_length"), "length")
    unit = these[0].experiment.unit if these else ""
    return _drawn(report, these, "most", f"longest prompt ({unit})", OVER_PROMPT_LENGTH, 4.4)


def _drawn(
    report: PaperReport,
    these: list[Row],
    along: Literal["length", "most"],
    x: str,
    panels: Sequence[Panel],
    height: float,
) -> Figure | None:
    lanes = paper_lanes(these)
    shown = [row for row in these if row.lane in lanes]
    if not any(SPEED in row.cell.stats for row in shown):
        return None
    figure, grid = sheet(len(panels) // 2, 2, width=10, height=height)
    every = [axes for row in grid for axes in row]
    for axes, panel in zip(every, panels, strict=True):
        for lane in lanes:
            if not (panel.drafting and lane.method == "ar"):
                drawn = points(lane, shown, panel.key, along)
                curve(axes, drawn, look(lane.family), label(lane), scale=panel.scale)
        ticks_at(axes, sorted({getattr(row.cell, along) for row in these}))
        if panel.key == SPEEDUP:
            level(axes, 1)
        name_axes(axes, title=panel.title, x=x, y=panel.y)
    figure.legend(*every[1].get_legend_handles_labels(), loc="outside upper center", ncols=len(lanes))
    return sign(figure, report, shown)


FIXED = look("fixed")
Side: TypeAlias = Literal["depth", "branching", "tau"]
SIDES: dict[Side, str] = {
    "depth": "depth D (levels)",
    "branching": "branching B (children)",
    "tau": "threshold τ (probability)",
}
SPEEDUP_UNIT = "speed (x ar)"
IN_CELLS = "with the fastest τ of each cell"
STAR: Mapping[str, Any] = {"marker": "*", "color": ACCENT, "markeredgecolor": "black", "markersize": 15, "zorder": 5}


class Tree(NamedTuple):
    """Setting of a fixed tree."""

    depth: int
    branching: int
    tau: float


Grid: TypeAlias = Mapping[Tree, Mapping[str, Interval]]
"""Figures of each measured tree with a speed; all trees have the same node limit and text length."""


def fixed_tree_sweep(report: PaperReport) -> Figure | None:
    """Six panels on the longest texts: three panels of speed-up over one parameter each, heat maps of speed-up and of
    l-bar, and a panel of acceptance.
    """
    these = greatest(rows_of(report, "fixed_trees"), "most", "length")
    trees = _grid(these)
    if not trees:
        return None
    top = max(trees, key=lambda tree: trees[tree][SPEEDUP].value)
    figure, (upper, (speedup, path, acceptance)) = sheet(2, 3, width=13, height=7.4)
    _along_sides(upper, trees, top)
    for axes, key, title in (
        (speedup, SPEEDUP, f"(d) {SPEEDUP_UNIT} {IN_CELLS}"),
        (path, "paper_path_length", f"(e) l-bar (tokens a round) {IN_CELLS}"),
    ):
        if shown := _at_best_threshold(trees, key):
            heat_map(axes, shown, "{:.2f}".format)
        name_axes(axes, title=title, x=SIDES["branching"], y=SIDES["depth"])
    curve(acceptance, _cut(trees, "paper_acceptance", "tau", top), FIXED, "", scale=100)
    _scale(acceptance, trees, "tau")
    acceptance.margins(y=0.25)
    name_axes(acceptance, title="(f) acceptance versus threshold τ", x=SIDES["tau"], y="the paper's formula (%)")
    described = f"D = {top.depth}, B = {top.branching}, τ = {top.tau:g}"
    return sign(figure, report, these, f"(a), (b), (c), (f) vary one parameter of the fastest tree, {described}")


def _grid(these: list[Row]) -> Grid:
    """Trees with the same node limit; if there are several limits, trees with the most common limit."""
    by_limit: dict[int, dict[Tree, Mapping[str, Interval]]] = {}
    for row in these:
        if row.lane.method == "fixed" and SPEEDUP in row.cell.stats:
            given = row.lane.parameters
            tree = Tree(given["depth"], given["branching"], given["tau"])
            by_limit.setdefault(given["n_max"], {})[tree] = row.cell.stats
    return max(by_limit.values(), key=len, default={})


def _values(trees: Grid, side: Side) -> list[float]:
    return sorted({getattr(tree, side) for tree in trees})


def _cut(trees: Grid, key: str, side: Side, at: Tree) -> Points:
    """Curve of a quantity over one parameter; the other two parameters are those of the setting `at`."""
    by_value = {value: trees.get(Tree(**at._asdict() | {side: value}), {}) for value in _values(trees, side)}
    return [(value, stats[key]) for value, stats in by_value.items() if key in stats]


def _at_best_threshold(trees: Grid, key: str) -> Table:
    """Values of a quantity by (depth, branching), with the threshold that has the greatest speed-up there."""
    rising = sorted(trees.items(), key=lambda tree: tree[1][SPEEDUP].value)
    fastest = {(tree.depth, tree.branching): stats for tree, stats in rising}
    return {place: stats[key].value for place, stats in fastest.items() if key in stats}


def _scale(axes: Axes, trees: Grid, side: Side) -> None:
    """Sets ticks at the measured values of a parameter, and a logarithmic axis for several thresholds above 0."""
    values = _values(trees, side)
    if side == "tau" and values[0] > 0 and len(values) > 1:
        axes.set_xscale("log")
    ticks_at(axes, values)


def _along_sides(row: tuple[Axes, Axes, Axes], trees: Grid, top: Tree) -> None:
    """Draws a panel of speed-up over each parameter of the fastest tree; a star marks the fastest tree."""
    for axes, letter, (side, unit) in zip(row, "abc", SIDES.items(), strict=True):
        curve(axes, _cut(trees, SPEEDUP, side, top), FIXED, "")
        _scale(axes, trees, side)
        axes.plot([getattr(top, side)], [trees[top][SPEEDUP].value], linestyle="", **STAR)
        level(axes, 1)
        name_axes(axes, title=f"({letter}) speed-up versus {unit.partition(' (')[0]}", x=unit, y=SPEEDUP_UNIT)
    low, high = zip(*(axes.get_ylim() for axes in row), strict=True)
    for axes in row:
        axes.set_ylim(min(low), max(high))


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

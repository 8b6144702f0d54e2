"""Sweep of fixed trees in six panels, like the paper's figure 7."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.figures.cells import SPEEDUP, Points, Table, rows_of
from dynatui.lab.bench.paper.figures.marks import curve, heat_map, level, logarithmic, star, ticks_at
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import look, name_axes, sheet
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.rows import Row, greatest

FIXED = look("fixed")
Side: TypeAlias = Literal["depth", "branching", "tau"]
SIDES: dict[Side, str] = {
    "depth": "depth D (levels)",
    "branching": "branching B (children)",
    "tau": "threshold τ (probability)",
}
SPEEDUP_UNIT = "speed (x ar)"
IN_CELLS = "with the fastest τ of each cell"


class Tree(NamedTuple):
    """Setting of a fixed tree."""

    depth: int
    branching: int
    tau: float


Grid: TypeAlias = Mapping[Tree, Mapping[str, Interval]]
"""Figures of the trees that have a speed, by setting; all trees have the same node limit and text length."""


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
    """Trees with one node limit; if limits differ, those with the most common one."""
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
    """A quantity by depth and branching, in each case at the threshold with the greatest speed-up."""
    rising = sorted(trees.items(), key=lambda tree: tree[1][SPEEDUP].value)
    fastest = {(tree.depth, tree.branching): stats for tree, stats in rising}
    return {place: stats[key].value for place, stats in fastest.items() if key in stats}


def _scale(axes: Axes, trees: Grid, side: Side) -> None:
    """Sets ticks at the measured values of a parameter, and a logarithmic axis for thresholds."""
    if side == "tau":
        logarithmic(axes, _values(trees, side))
    ticks_at(axes, _values(trees, side))


def _along_sides(row: tuple[Axes, Axes, Axes], trees: Grid, top: Tree) -> None:
    """Draws a panel of speed-up over each parameter of the fastest tree, which a star marks."""
    for axes, letter, (side, unit) in zip(row, "abc", SIDES.items(), strict=True):
        curve(axes, _cut(trees, SPEEDUP, side, top), FIXED, "")
        _scale(axes, trees, side)
        star(axes, getattr(top, side), trees[top][SPEEDUP].value)
        level(axes, 1)
        name_axes(axes, title=f"({letter}) speed-up versus {unit.partition(' (')[0]}", x=unit, y=SPEEDUP_UNIT)
    low, high = zip(*(axes.get_ylim() for axes in row), strict=True)
    for axes in row:
        axes.set_ylim(min(low), max(high))

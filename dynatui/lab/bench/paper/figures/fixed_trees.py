"""Sweep of fixed trees in six panels, like the paper's figure 7."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.cells import SPEEDUP, longest
from dynatui.lab.bench.paper.figures.marks import curve, heat_map, level, logarithmic, star, ticks_at
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import look, name_axes, sheet
from dynatui.lab.bench.paper.figures.tree_grid import (
    Grid,
    Side,
    Tree,
    at_best_threshold,
    best,
    cut,
    grid,
    grid_cells,
    values,
)
from dynatui.lab.bench.paper.report import PaperReport

FIXED = look("fixed")
SIDES: dict[Side, str] = {
    "depth": "depth D (levels)",
    "branching": "branching B (children)",
    "tau": "threshold τ (probability)",
}
SPEEDUP_UNIT = "speed (x ar)"


def fixed_tree_sweep(report: PaperReport) -> Figure | None:
    """Six panels on the longest texts: three panels of speed-up over one parameter each, heat maps of speed-up and of
    l-bar, and a panel of acceptance.
    """
    cells = longest(grid_cells(report))
    trees = grid(report, cells)
    if not trees:
        return None
    figure, (upper, (speedup, path, acceptance)) = sheet(2, 3, width=13, height=7.4)
    _along_sides(upper, trees)
    heat_map(speedup, at_best_threshold(trees, SPEEDUP), "{:.2f}".format)
    name_axes(
        speedup, title=f"(d) {SPEEDUP_UNIT} with the fastest τ of each cell", x=SIDES["branching"], y=SIDES["depth"]
    )
    _path_lengths(path, trees)
    _acceptance(acceptance, trees)
    return sign(figure, report, cells, _remark(trees))


def described(tree: Tree) -> str:
    """Setting of a fixed tree, as written in captions."""
    return f"D = {tree.depth}, B = {tree.branching}, τ = {tree.tau:g}"


def _remark(trees: Grid) -> str:
    return f"(a), (b), (c), (f) vary one parameter of the fastest tree, {described(best(trees))}"


def scale(axes: Axes, trees: Grid, side: Side) -> None:
    """Sets ticks at the measured values of a parameter, and a logarithmic axis for thresholds."""
    if side == "tau":
        logarithmic(axes, values(trees, side))
    ticks_at(axes, values(trees, side))


def _along_sides(row: tuple[Axes, Axes, Axes], trees: Grid) -> None:
    """Draws a panel of speed-up over each parameter. In each panel, the other two parameters have the values of the
    fastest tree, and a star marks the fastest tree.
    """
    top = best(trees)
    for axes, letter, (side, unit) in zip(row, "abc", SIDES.items(), strict=True):
        curve(axes, cut(trees, SPEEDUP, side, top), FIXED, "")
        scale(axes, trees, side)
        star(axes, getattr(top, side), trees[top].stats[SPEEDUP].value)
        level(axes, 1)
        name_axes(axes, title=f"({letter}) speed-up versus {unit.partition(' (')[0]}", x=unit, y=SPEEDUP_UNIT)
    low, high = zip(*(axes.get_ylim() for axes in row), strict=True)
    for axes in row:
        axes.set_ylim(min(low), max(high))


def _path_lengths(axes: Axes, trees: Grid) -> None:
    lengths = at_best_threshold(trees, "paper_path_length")
    if lengths:
        heat_map(axes, lengths, "{:.2f}".format)
    name_axes(
        axes, title="(e) l-bar (tokens a round) with the fastest τ of each cell", x=SIDES["branching"], y=SIDES["depth"]
    )


def _acceptance(axes: Axes, trees: Grid) -> None:
    top = best(trees)
    curve(axes, cut(trees, "paper_acceptance", "tau", top), FIXED, "", scale=100)
    scale(axes, trees, "tau")
    axes.margins(y=0.25)
    name_axes(axes, title="(f) acceptance versus threshold τ", x=SIDES["tau"], y="the paper's formula (%)")

"""Speeds of fixed trees in tokens/s, as curves and as a heat map, like two figures of the paper's first version."""

from collections.abc import Mapping

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.cells import SPEED, Table, early
from dynatui.lab.bench.paper.figures.fixed_trees import SIDES, described, scale
from dynatui.lab.bench.paper.figures.marks import confine, curve, heat_map, shift, star
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import COLOURS_OF_VALUES, MARKS, Look, name_axes, sheet
from dynatui.lab.bench.paper.figures.tree_grid import Grid, Side, best, cut, grid, grid_cells, moved, values
from dynatui.lab.bench.paper.report import PaperReport

SPEED_UNIT = "speed (tokens/s)"
HEAT_MAP_TAU = 0.05
"""Threshold tau of the heat map in the paper's first version."""
PANELS: Mapping[Side, Side] = {"branching": "depth", "depth": "branching", "tau": "depth"}
"""For each panel: the parameter on the x axis, and a second parameter, which has a different value on each curve."""
APART = 2.5
"""Horizontal distance between the whiskers of neighbouring curves, in points."""
SYMBOLS: Mapping[Side, str] = {"depth": "D", "branching": "B", "tau": "τ"}


def tree_config_comparison(report: PaperReport) -> Figure | None:
    """Speed over branching, depth and threshold, with a curve for each value of a second parameter.

    The third parameter has the value that it has in the fastest tree.
    """
    cells = early(grid_cells(report))
    trees = grid(report, cells)
    if not trees:
        return None
    figure, (row,) = sheet(1, 3, width=13, height=4.4)
    for axes, letter, (along, each) in zip(row, "abc", PANELS.items(), strict=True):
        _curves(axes, trees, along, each)
        name_axes(
            axes, title=f"({letter}) speed versus {SIDES[along].partition(' (')[0]}", x=SIDES[along], y=SPEED_UNIT
        )
    remark = (
        f"star: fastest tree, {described(best(trees))}; each panel varies two parameters, and the third has the same "
        "value as in this tree"
    )
    return sign(figure, report, cells, remark)


def tree_config_heatmap(report: PaperReport) -> Figure | None:
    """Heat map of speed by depth and branching, at one threshold."""
    cells = early(grid_cells(report))
    trees = grid(report, cells)
    if not trees:
        return None
    tau = HEAT_MAP_TAU if HEAT_MAP_TAU in values(trees, "tau") else best(trees).tau
    shown = {tree: cell for tree, cell in trees.items() if tree.tau == tau}
    speeds: Table = {(tree.depth, tree.branching): cell.stats[SPEED].value for tree, cell in shown.items()}
    figure, ((axes,),) = sheet(1, 1, width=6, height=4.6)
    heat_map(axes, speeds, "{:.0f}".format)
    name_axes(axes, title=f"{SPEED_UNIT} at τ = {tau:g}", x=SIDES["branching"], y=SIDES["depth"])
    return sign(figure, report, cells)


def _curves(axes: Axes, trees: Grid, along: Side, each: Side) -> None:
    """Draws a curve over `along` for every value of `each`, in colours from dark to light."""
    top, shown = best(trees), values(trees, each)
    shades = colormaps[COLOURS_OF_VALUES].resampled(len(shown) + 1)
    for number, value in enumerate(shown):
        drawn = Look(to_hex(shades(number)), MARKS[number % len(MARKS)], "-")
        points = cut(trees, SPEED, along, moved(top, each, value))
        parts = curve(axes, points, drawn, f"{SYMBOLS[each]} = {value:g}")
        if value == getattr(top, each):
            parts += star(axes, getattr(top, along), trees[top].stats[SPEED].value)
        shift(axes, parts, APART * (number - (len(shown) - 1) / 2))
    scale(axes, trees, along)
    axes.margins(y=0.05)
    confine(axes, 0, 0.84)
    axes.legend(loc="upper center", ncols=3)

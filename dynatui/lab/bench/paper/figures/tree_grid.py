"""Grid of fixed trees by depth, branching and threshold; the grid's fastest tree; and curves over one parameter.

All functions are pure.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from dynatui.lab.bench.paper.figures.cells import SPEEDUP, Points, Table, cells_of, lanes_of, longest_prompts
from dynatui.lab.bench.paper.report import Cell, PaperReport

Side = Literal["depth", "branching", "tau"]
EXPERIMENT = "fixed_trees"


class Tree(NamedTuple):
    """Setting of a fixed tree: depth, branching and threshold."""

    depth: int
    branching: int
    tau: float


Grid: TypeAlias = Mapping[Tree, Cell]
"""Cells that have a speed, by the tree's setting; all cells have the same node limit and text length."""


def grid_cells(report: PaperReport) -> list[Cell]:
    """Cells of the experiment `fixed_trees`, with all text lengths."""
    return longest_prompts(cells_of(report, EXPERIMENT))


def grid(report: PaperReport, cells: Sequence[Cell]) -> Grid:
    """Grid of cells with one text length; if node limits differ, only cells with the most common limit are kept."""
    by_most_nodes: dict[int, dict[Tree, Cell]] = {}
    by_name = {cell.lane: cell for cell in cells if SPEEDUP in cell.stats}
    for lane in lanes_of(report, cells):
        if lane.method == "fixed" and lane.name in by_name:
            given = lane.parameters
            tree = Tree(given["depth"], given["branching"], given["tau"])
            by_most_nodes.setdefault(given["n_max"], {})[tree] = by_name[lane.name]
    return max(by_most_nodes.values(), key=len, default={})


def best(trees: Grid) -> Tree:
    """Setting with the greatest speed-up; the grid must not be empty."""
    return max(trees.items(), key=_speedup)[0]


def moved(tree: Tree, side: Side, value: float) -> Tree:
    """Setting with the value of one parameter replaced."""
    return Tree(**{**tree._asdict(), side: value})


def cut(trees: Grid, key: str, side: Side, at: Tree) -> Points:
    """Curve of the quantity `key` over one parameter; the other two parameters are those of the setting `at`."""
    by_value = {value: trees.get(moved(at, side, value)) for value in values(trees, side)}
    return [(value, cell.stats[key]) for value, cell in by_value.items() if cell and key in cell.stats]


def values(trees: Grid, side: Side) -> list[float]:
    """All measured values of a parameter, in ascending order."""
    return sorted({getattr(tree, side) for tree in trees})


def at_best_threshold(trees: Grid, key: str) -> Table:
    """Quantity `key` by depth and branching, in each case at the threshold with the greatest speed-up."""
    fastest = {(tree.depth, tree.branching): cell for tree, cell in sorted(trees.items(), key=_speedup)}
    return {place: cell.stats[key].value for place, cell in fastest.items() if key in cell.stats}


def _speedup(measured: tuple[Tree, Cell]) -> float:
    return measured[1].stats[SPEEDUP].value

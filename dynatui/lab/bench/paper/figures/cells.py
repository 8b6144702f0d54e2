"""Selection of the cells and lanes that a figure shows. All functions are pure and do not use matplotlib."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.report import Cell, PaperReport
from dynatui.lab.bench.paper.request import Lane

SPEED, SPEEDUP = "tokens_per_second", "speedup"
FIRST_DATA_SET = "WikiText-2"
"""Name of the data set that the paper shows in figures with only one data set."""
DYNATREE = "DynaTree"
"""Name of the row for the complete method in the paper's tables."""
Points: TypeAlias = Sequence[tuple[float, Interval]]
"""Points of a curve: x in ascending order, and the mean of the drawn quantity with its interval."""
Table: TypeAlias = Mapping[tuple[float, float], float]
"""Values of a heat map by row and column."""
Lanes: TypeAlias = Sequence[Lane]


def data_sets(report: PaperReport, experiment: str) -> list[str]:
    """Names of the data sets that were measured in an experiment; the one that stands for WikiText-2 comes first."""
    measured = {cell.data_set for cell in report.cells if cell.experiment == experiment}
    text_sets = [each for each in report.header.request.text_sets if each.name in measured]
    return [each.name for each in sorted(text_sets, key=lambda each: each.stands_for != FIRST_DATA_SET)]


def cells_of(report: PaperReport, experiment: str) -> list[Cell]:
    """Cells of an experiment on its first data set, with all text lengths and prompt lengths."""
    first = data_sets(report, experiment)[:1]
    return [cell for cell in report.cells if cell.experiment == experiment and cell.data_set in first]


def longest_prompts(cells: Iterable[Cell]) -> list[Cell]:
    """Cells with the greatest maximum prompt length."""
    known = list(cells)
    most = max((cell.most for cell in known), default=0)
    return [cell for cell in known if cell.most == most]


def longest(cells: Iterable[Cell]) -> list[Cell]:
    """Cells with the greatest text length."""
    known = list(cells)
    length = max((cell.length for cell in known), default=0)
    return [cell for cell in known if cell.length == length]


def lanes_of(report: PaperReport, cells: Sequence[Cell]) -> list[Lane]:
    """Lanes that have cells, in the order of the request."""
    measured = {cell.lane for cell in cells}
    return [lane for lane in report.header.request.lanes if lane.name in measured]


def label(lane: Lane) -> str:
    """Label of a lane in figures: the paper's name for it if there is one, else the lane's own name."""
    return lane.paper_name or lane.name


def fastest(lanes: Iterable[Lane], cells: Sequence[Cell]) -> Lane | None:
    """Lane with the greatest mean speed-up in these cells; the first lane if none has a speed."""
    return max(lanes, key=lambda lane: _mean_speedup(lane, cells), default=None)


def paper_lanes(report: PaperReport, cells: Sequence[Cell]) -> list[Lane]:
    """Measured lanes of the paper's four methods: AR, the fastest linear lane, the fastest fixed tree, and DynaTree."""
    lanes = lanes_of(report, cells)
    groups = [[lane for lane in lanes if lane.method == method] for method in ("ar", "linear", "fixed")]
    groups.append([lane for lane in lanes if lane.paper_name == DYNATREE])
    return [leader for group in groups if (leader := fastest(group, cells))]


def stat_of(lane: Lane, cells: Sequence[Cell], key: str) -> Interval | None:
    """Quantity `key` in the lane's first cell; None if the quantity is unknown or the lane has no cell."""
    return next((cell.stats.get(key) for cell in cells if cell.lane == lane.name), None)


def points(lane: Lane, cells: Sequence[Cell], key: str, along: Callable[[Cell], float]) -> Points:
    """Curve of the quantity `key` in the cells of a lane; `along` returns the x value of a cell."""
    mine = sorted((cell for cell in cells if cell.lane == lane.name), key=along)
    return [(along(cell), cell.stats[key]) for cell in mine if key in cell.stats]


def without(cells: Sequence[Cell], key: str) -> list[str]:
    """Names of the lanes whose cells all lack the quantity `key`."""
    known = {cell.lane for cell in cells if key in cell.stats}
    return [name for name in Counter(cell.lane for cell in cells) if name not in known]


def _mean_speedup(lane: Lane, cells: Sequence[Cell]) -> float:
    speedups = [cell.stats[SPEEDUP].value for cell in cells if cell.lane == lane.name and SPEEDUP in cell.stats]
    return fmean(speedups) if speedups else 0.0

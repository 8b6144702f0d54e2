"""Selection of the rows and lanes that a figure shows. All functions are pure and do not use matplotlib."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal, TypeAlias

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.published import DYNATREE, WIKITEXT
from dynatui.lab.bench.paper.records import PaperLane
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.rows import Row, rows

SPEED, SPEEDUP = "tokens_per_second", "speedup"
Points: TypeAlias = Sequence[tuple[float, Interval]]
"""Points (x, mean of the drawn quantity with its interval) of a curve, in ascending order of x."""
Table: TypeAlias = Mapping[tuple[float, float], float]
"""Values of a heat map by row and column."""


def data_sets(report: PaperReport, experiment: str) -> list[str]:
    """Names of the data sets that were measured in an experiment; the one that stands for WikiText-2 comes first."""
    measured = {cell.data_set for cell in report.cells if cell.experiment == experiment}
    text_sets = [each for each in report.header.request.text_sets if each.name in measured]
    return [each.name for each in sorted(text_sets, key=lambda each: each.stands_for != WIKITEXT)]


def rows_of(report: PaperReport, experiment: str) -> list[Row]:
    """Rows of an experiment on its first data set (WikiText-2 if measured), for figures of a single data set."""
    return [row for name in data_sets(report, experiment)[:1] for row in rows(report, experiment, name)]


def lanes_of(these: Iterable[Row]) -> list[PaperLane]:
    return list({row.lane.name: row.lane for row in these}.values())


def label(lane: PaperLane) -> str:
    """Name of the lane in the paper; the lane's own name if the paper does not have the lane."""
    return lane.paper_name or lane.name


def fastest(lanes: Iterable[PaperLane], these: Sequence[Row]) -> PaperLane | None:
    """Lane with the greatest mean speed-up in these rows; the first lane if no lane has a speed."""

    def mean_speedup(lane: PaperLane) -> float:
        return fmean([stat.value for _, stat in points(lane, these, SPEEDUP)] or [0.0])

    return max(lanes, key=mean_speedup, default=None)


def paper_lanes(these: Sequence[Row]) -> list[PaperLane]:
    """Lanes of the paper's four methods: AR, the fastest linear lane, the fastest fixed tree, and DynaTree."""
    lanes = lanes_of(these)
    groups = [[lane for lane in lanes if lane.method == method] for method in ("ar", "linear", "fixed")]
    groups.append([lane for lane in lanes if lane.paper_name == DYNATREE])
    return [leader for group in groups if (leader := fastest(group, these))]


def points(lane: PaperLane, these: Iterable[Row], key: str, along: Literal["length", "most"] = "length") -> Points:
    """Curve of the quantity `key` of a lane over the text length or the prompt length."""
    known = [row.cell for row in these if row.lane.name == lane.name and key in row.cell.stats]
    return [(getattr(cell, along), cell.stats[key]) for cell in known]


def stat_of(lane: PaperLane, these: Iterable[Row], key: str) -> Interval | None:
    """Quantity `key` in the lane's first row that has it."""
    return next((stat for _, stat in points(lane, these, key)), None)


def without(these: Sequence[Row], key: str) -> list[PaperLane]:
    """Lanes whose rows all lack the quantity `key`."""
    return [lane for lane in lanes_of(these) if not points(lane, these, key)]

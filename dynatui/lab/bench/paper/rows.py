"""Rows of tables and points of figures: each cell (lane summary) of a report, with its lane and its experiment."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from decoder.analysis.interval import Interval
from dynatui.lab.bench.data_sets.prompts import TextSet
from dynatui.lab.bench.paper import published
from dynatui.lab.bench.paper.published import PublishedNumber
from dynatui.lab.bench.paper.records import PaperExperiment, PaperLane
from dynatui.lab.bench.paper.report import LaneSummary, PaperReport


class Row(NamedTuple):
    """A lane in one experiment at one text length."""

    cell: LaneSummary
    lane: PaperLane
    experiment: PaperExperiment
    text_set: TextSet
    more: Mapping[str, Interval | float | None] = MappingProxyType({})
    """Figures that are computed from this row and other rows."""

    def paper(self, figure: str, *, exact: bool) -> PublishedNumber | None:
        """The paper's number for this lane: if `exact`, at the row's T and L_max; otherwise, at the setting of the
        paper's main results. None if the paper has no such number.
        """
        name, data_set = paper_row(self.experiment.name, self.lane), self.text_set.stands_for
        if not exact:
            return published.usual(name, data_set, figure)
        if self.experiment.unit != "characters":
            return None
        return published.at(name, data_set, figure, self.cell.length, self.experiment.most)


def rows(report: PaperReport, name: str, data_set: str | None = None) -> list[Row]:
    """Rows of all experiments with this name, ordered by prompt length, then by text length, then by lane."""
    request = report.header.request
    experiments = {(each.name, each.data_set, each.most): each for each in request.experiments}
    found = [
        Row(
            cell,
            request.lane(cell.lane),
            experiments[cell.experiment, cell.data_set, cell.most],
            request.text_set(cell.data_set),
        )
        for cell in report.cells
        if cell.experiment == name and data_set in (None, cell.data_set)
    ]
    return sorted(found, key=lambda row: (row.cell.most, row.cell.length))


def greatest(these: Iterable[Row], *fields: Literal["length", "most"]) -> list[Row]:
    """Rows with the greatest value of the first field and, of these rows, the greatest value of the next field."""
    kept = list(these)
    for field in fields:
        top = max((getattr(row.cell, field) for row in kept), default=0)
        kept = [row for row in kept if getattr(row.cell, field) == top]
    return kept


def paper_row(experiment: str, lane: PaperLane) -> str | None:
    """Row of the paper's tables, or setting of one of its sweeps, that a lane repeats; None if there is none.

    The sweep is taken from the lane's name, since some settings belong to several sweeps.
    """
    given = lane.parameters
    if experiment == "fixed_trees" and lane.method == "fixed":
        return f"Fixed D={given['depth']} B={given['branching']} tau={given['tau']:g}"
    if experiment != "sensitivity" or lane.method != "dynatree":
        return lane.paper_name
    if lane.name.startswith("branching"):
        return f"B_min={given['branching'][0]} B_max={given['branching'][2]}"
    if lane.name.startswith("d0"):
        return f"D0={given['d0']:g} D_max={given['d_max']}"
    return f"tau_h={given['tau_h']:g} tau_l={given['tau_l']:g}"

"""Figure of speed by maximum prompt length, like the paper's figure 8."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.cells import (
    SPEED,
    SPEEDUP,
    Lanes,
    cells_of,
    label,
    longest,
    paper_lanes,
    points,
)
from dynatui.lab.bench.paper.figures.marks import curve, level, ticks_at
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import look, name_axes, sheet
from dynatui.lab.bench.paper.report import Cell, PaperReport

EXPERIMENT = "prompt_length"


def prompt_length_sensitivity(report: PaperReport) -> Figure | None:
    """Speed and speed-up of the paper's four methods, on the longest texts."""
    cells = longest(cells_of(report, EXPERIMENT))
    return _speeds(report, paper_lanes(report, cells), cells)


def _speeds(report: PaperReport, lanes: Lanes, cells: Sequence[Cell]) -> Figure | None:
    if not any(SPEED in cell.stats for cell in cells):
        return None
    figure, ((left, right),) = sheet(1, 2, width=10, height=4.4)
    for axes, key in ((left, SPEED), (right, SPEEDUP)):
        for lane in lanes:
            curve(axes, points(lane, cells, key, lambda cell: cell.most), look(lane.family), label(lane))
        ticks_at(axes, sorted({cell.most for cell in cells}))
    level(right, 1)
    longest_prompt = f"longest prompt ({_unit(report)})"
    name_axes(left, title="(a) throughput", x=longest_prompt, y="speed (tokens/s)")
    name_axes(right, title="(b) speed-up", x=longest_prompt, y="speed (x ar)")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=min(5, len(lanes)))
    return sign(figure, report, cells)


def _unit(report: PaperReport) -> str:
    """Unit of the prompt lengths in the experiment `prompt_length`."""
    return next(each.unit for each in report.header.request.experiments if each.name == EXPERIMENT)

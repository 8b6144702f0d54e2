"""Figure with text length on the x axis, like the paper's figure 5."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.cells import (
    SPEED,
    Lanes,
    cells_of,
    label,
    longest_prompts,
    paper_lanes,
    points,
)
from dynatui.lab.bench.paper.figures.marks import curve, ticks_at
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import look, name_axes, sheet
from dynatui.lab.bench.paper.report import Cell, PaperReport

LENGTH = "T, new tokens"


def length_scaling_fourpanel(report: PaperReport) -> Figure | None:
    """Four panels over text length, for the paper's four methods: speed, L-bar, l-bar and acceptance."""
    cells = longest_prompts(cells_of(report, "main"))
    lanes = paper_lanes(report, cells)
    if not lanes:
        return None
    drafting = [lane for lane in lanes if lane.method != "ar"]
    figure, ((speed, tokens), (path, acceptance)) = sheet(2, 2, width=10, height=7)
    _over_length(speed, lanes, cells, SPEED)
    _over_length(tokens, lanes, cells, "tokens_per_round")
    _over_length(path, drafting, cells, "paper_path_length")
    _over_length(acceptance, drafting, cells, "paper_acceptance", scale=100)
    name_axes(speed, title="(a) throughput", x=LENGTH, y="speed (tokens/s)")
    name_axes(tokens, title="(b) tokens a round", x=LENGTH, y="L-bar (tokens)")
    name_axes(path, title="(c) tokens a round, mean over prompts", x=LENGTH, y="l-bar (tokens)")
    name_axes(acceptance, title="(d) acceptance", x=LENGTH, y="the paper's formula (%)")
    figure.legend(*tokens.get_legend_handles_labels(), loc="outside upper center", ncols=len(lanes))
    return sign(figure, report, [cell for cell in cells if any(cell.lane == lane.name for lane in lanes)])


def _over_length(axes: Axes, lanes: Lanes, cells: list[Cell], key: str, *, scale: float = 1.0) -> None:
    for lane in lanes:
        curve(axes, points(lane, cells, key, lambda cell: cell.length), look(lane.family), label(lane), scale=scale)
    ticks_at(axes, sorted({cell.length for cell in cells}))

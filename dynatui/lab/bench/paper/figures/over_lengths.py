"""Curves of the paper's four methods over text length and over prompt length, like the paper's figures 5 and 8."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.cells import SPEED, SPEEDUP, label, paper_lanes, points, rows_of
from dynatui.lab.bench.paper.figures.marks import curve, level, ticks_at
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import look, name_axes, sheet
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.rows import Row, greatest


class Panel(NamedTuple):
    """One panel: its titles, and the quantity that it shows."""

    title: str
    y: str
    key: str
    scale: float = 1.0
    drafting: bool = False
    """Whether plain decoding, which has no draft, is left out."""


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
    """Speed and speed-up over maximum prompt length, of the longest texts."""
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

"""Ablation of DynaTree, like the paper's figure 4, but with separate steps for breadth and depth."""

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.cells import (
    DYNATREE,
    SPEED,
    SPEEDUP,
    cells_of,
    label,
    lanes_of,
    longest,
    longest_prompts,
)
from dynatui.lab.bench.paper.figures.marks import above_bars, bars, confine, curve, means
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import ACCENT, DARK, LOOKS, Look, name_axes, right_axis, sheet
from dynatui.lab.bench.paper.report import Cell, PaperReport

STAGES = {"Fixed D5B2": "", "Phase 1": "+ breadth", "Phase 2": "+ depth", DYNATREE: "+ history"}
"""Rows of the paper's ablation, and the rule that each row adds; D5 in the first row is DynaTree's base depth."""
COLOURS = (LOOKS["fixed"].colour, "#ecc5b8", "#dc9079", ACCENT)


class Stage(NamedTuple):
    """Bar of the figure: one step of the ablation."""

    name: str
    colour: str
    cell: Cell


def ablation_progression(report: PaperReport) -> Figure | None:
    """Two panels over the steps of the ablation: (a) speed and rounds per text, (b) tokens per round and acceptance."""
    cells = longest(longest_prompts(cells_of(report, "main")))
    stages = _stages(report, cells)
    if len(stages) < 2 or not any(SPEED in stage.cell.stats for stage in stages):
        return None
    figure, ((left, right),) = sheet(1, 2, width=10, height=4.2)
    _speed(left, stages)
    _progress(right, stages)
    for axes in (left, right):
        axes.set_xticks(range(len(stages)), [stage.name for stage in stages])
        axes.set_xlim(-0.6, len(stages) - 0.4)
        axes.grid(visible=False, axis="x")
    return sign(figure, report, [stage.cell for stage in stages])


def _stages(report: PaperReport, cells: list[Cell]) -> list[Stage]:
    """Steps of the ablation before the first missing step, since the labels of later steps would refer to that step."""
    lanes = {lane.paper_name: lane for lane in reversed(lanes_of(report, cells))}
    stages = []
    for (row, adds), colour in zip(STAGES.items(), COLOURS, strict=True):
        if row not in lanes:
            break
        lane = lanes[row]
        name = f"{label(lane)}\n{adds}".strip()
        stages.append(Stage(name, colour, next(cell for cell in cells if cell.lane == lane.name)))
    return stages


def _speed(axes: Axes, stages: list[Stage]) -> None:
    timed = [(place, stage) for place, stage in enumerate(stages) if SPEED in stage.cell.stats]
    places, stats = [place for place, _ in timed], [stage.cell.stats[SPEED] for _, stage in timed]
    texts = [f"{stage.cell.stats[SPEED].value:.0f} ({stage.cell.stats[SPEEDUP].value:.2f}x)" for _, stage in timed]
    bars(axes, places, stats, 0.6, color=[stage.colour for _, stage in timed])
    above_bars(axes, places, stats, texts, fontsize=8)
    name_axes(axes, title="(a) throughput and rounds", x="", y="speed (tokens/s, bars)")
    axes.set_ylim(0, 1.6 * max(means(stats)))
    axes.grid(visible=False)
    other = right_axis(axes, "rounds a text (line)")
    _line(other, stages, "rounds", "-", DARK)
    confine(other, 0.75, 1)


def _progress(axes: Axes, stages: list[Stage]) -> None:
    """Draws tokens per round and acceptance; for steps of equal depth, these quantities are nearly proportional."""
    name_axes(axes, title="(b) tokens a round and acceptance", x="", y="L-bar, tokens a round (solid)")
    _line(axes, stages, "tokens_per_round", "-", ACCENT)
    confine(axes, 0.3, 1)
    other = right_axis(axes, "acceptance by the paper's formula (%, dashed)")
    _line(other, stages, "paper_acceptance", "--", DARK, scale=100)
    confine(other, 0, 0.7)


def _line(axes: Axes, stages: list[Stage], key: str, dash: str, colour: str, *, scale: float = 1.0) -> None:
    known = [(place, stage.cell.stats[key]) for place, stage in enumerate(stages) if key in stage.cell.stats]
    curve(axes, known, Look(colour, "o" if dash == "-" else "s", dash), "", scale=scale)
    axes.margins(y=0.15)

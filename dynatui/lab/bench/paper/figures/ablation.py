"""Ablation of DynaTree, like the paper's figure 4, but with separate steps for breadth and depth."""

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.cells import SPEED, SPEEDUP, label, rows_of
from dynatui.lab.bench.paper.figures.marks import above_bars, bars, confine, curve, means
from dynatui.lab.bench.paper.figures.note import sign
from dynatui.lab.bench.paper.figures.style import ACCENT, DARK, LOOKS, Look, name_axes, right_axis, sheet
from dynatui.lab.bench.paper.published import DYNATREE, FIXED_BACKBONE, PHASE_1, PHASE_2
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.rows import Row, greatest

STEPS = (
    (FIXED_BACKBONE, "", LOOKS["fixed"].colour),
    (PHASE_1, "+ breadth", "#ecc5b8"),
    (PHASE_2, "+ depth", "#dc9079"),
    (DYNATREE, "+ history", ACCENT),
)
"""Rows of the paper's ablation, the rule that each adds, and its colour; the fixed tree has DynaTree's base depth."""


class Stage(NamedTuple):
    """Bar of the figure: one step of the ablation."""

    name: str
    colour: str
    row: Row


def ablation_progression(report: PaperReport) -> Figure | None:
    """Two panels over the steps of the ablation: (a) speed and rounds per text, (b) tokens per round and acceptance."""
    stages = _stages(greatest(rows_of(report, "main"), "most", "length"))
    if len(stages) < 2 or not any(SPEED in stage.row.cell.stats for stage in stages):
        return None
    figure, ((left, right),) = sheet(1, 2, width=10, height=4.2)
    _speed(left, stages)
    _progress(right, stages)
    for axes in (left, right):
        axes.set_xticks(range(len(stages)), [stage.name for stage in stages])
        axes.set_xlim(-0.6, len(stages) - 0.4)
        axes.grid(visible=False, axis="x")
    return sign(figure, report, [stage.row for stage in stages])


def _stages(these: list[Row]) -> list[Stage]:
    """Steps of the ablation before the first missing step, since the labels of later steps would refer to that step."""
    by_name = {row.lane.paper_name: row for row in reversed(these)}
    stages: list[Stage] = []
    for name, adds, colour in STEPS:
        if name not in by_name:
            break
        stages.append(Stage(f"{label(by_name[name].lane)}\n{adds}".strip(), colour, by_name[name]))
    return stages


def _speed(axes: Axes, stages: list[Stage]) -> None:
    timed = [
        (place, stage, stage.row.cell.stats) for place, stage in enumerate(stages) if SPEED in stage.row.cell.stats
    ]
    places, speeds = [place for place, _, _ in timed], [stats[SPEED] for _, _, stats in timed]
    texts = [f"{stats[SPEED].value:.0f} ({stats[SPEEDUP].value:.2f}x)" for _, _, stats in timed]
    bars(axes, places, speeds, 0.6, color=[stage.colour for _, stage, _ in timed])
    above_bars(axes, places, speeds, texts, fontsize=8)
    name_axes(axes, title="(a) throughput and rounds", x="", y="speed (tokens/s, bars)")
    axes.set_ylim(0, 1.6 * max(means(speeds)))
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
    stats = [stage.row.cell.stats for stage in stages]
    known = [(place, each[key]) for place, each in enumerate(stats) if key in each]
    curve(axes, known, Look(colour, "o" if dash == "-" else "s", dash), "", scale=scale)
    axes.margins(y=0.15)

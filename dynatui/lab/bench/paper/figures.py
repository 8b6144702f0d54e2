"""All figures by name, drawn as PNG and SVG; equal reports give files with equal bytes."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec.structs import replace

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper import DYNATREE, FIXED_BACKBONE, PHASE_1, PHASE_2, WIKITEXT, marks
from dynatui.lab.bench.paper.marks import LineStyle, Panel
from dynatui.lab.bench.paper.records import PaperLane
from dynatui.lab.bench.paper.report import SPEED, SPEEDUP, PaperReport, Row, longest, rows

NODES = "nodes_per_round"
SPEED_PANEL = Panel("(a) throughput", "speed (tokens/s)", SPEED, written="{:.0f}")
SPEEDUP_PANEL = Panel("(b) speed-up", "speed (x ar)", SPEEDUP, written="{:.2f}x")
TOKENS_PANEL = Panel("(b) tokens a round", "L-bar (tokens)", "tokens_per_round")
ACCEPTANCE_PANEL = Panel("(d) acceptance", "the paper's formula (%)", "paper_acceptance", 100, "{:.0f}", drafting=True)
SPEEDS = (SPEED_PANEL, SPEEDUP_PANEL)
ABLATION = (
    SPEED_PANEL,
    TOKENS_PANEL,
    Panel("(c) rounds", "rounds a text", "rounds", written="{:.0f}"),
    ACCEPTANCE_PANEL,
)
OVER_LENGTH = (
    SPEED_PANEL,
    TOKENS_PANEL,
    Panel("(c) tokens a round, mean over prompts", "l-bar (tokens)", "paper_path_length", drafting=True),
    ACCEPTANCE_PANEL,
)


def data_sets(report: PaperReport, experiment: str) -> dict[str, str]:
    """Titles by name of the data sets measured in an experiment; the one that stands for WikiText-2 comes first."""
    text_sets = [row.text_set for row in report.rows if row.experiment.name == experiment]
    return {each.name: each.title for each in sorted(text_sets, key=lambda each: each.stands_for != WIKITEXT)}


def rows_of(report: PaperReport, experiment: str) -> list[Row]:
    """Rows of an experiment on its first data set (WikiText-2 if measured), for figures of a single data set."""
    return [row for name in [*data_sets(report, experiment)][:1] for row in rows(report, experiment, name)]


def paper_lanes(these: Sequence[Row]) -> list[PaperLane]:
    """Lanes of the paper's four methods: AR, the fastest linear lane, the fastest fixed tree, and DynaTree."""

    def mean_speedup(lane: PaperLane) -> float:
        return fmean([row.stats[SPEEDUP].value for row in these if row.lane == lane and SPEEDUP in row.stats] or [0.0])

    lanes = list({row.lane.name: row.lane for row in these}.values())
    groups = [[lane for lane in lanes if lane.method == method] for method in ("ar", "linear", "fixed")]
    groups.append([lane for lane in lanes if lane.paper_name == DYNATREE])
    return [max(group, key=mean_speedup) for group in groups if group]


def main_results_bars(report: PaperReport) -> Figure | None:
    """Speed and speed-up of the paper's four methods; on each data set, a method is shown by its fastest lane."""
    by_family: dict[str, dict[str, Row]] = {}
    for name in data_sets(report, "main"):
        these = longest(rows(report, "main", name))
        for lane in paper_lanes(these):
            by_family.setdefault(lane.family, {})[name] = next(row for row in these if row.lane == lane)
    return _of_bars(report, list(by_family.values()), SPEEDS)


def ablation_progression(report: PaperReport) -> Figure | None:
    """Speed, rounds, tokens per round and acceptance of the steps of the ablation before the first missing step."""
    by_step: dict[str, dict[str, Row]] = {name: {} for name in (FIXED_BACKBONE, PHASE_1, PHASE_2, DYNATREE)}
    for row in longest(rows(report, "main")):
        if row.lane.paper_name in by_step:
            by_step[row.lane.paper_name].setdefault(row.text_set.name, row)
    steps = list(takewhile(bool, by_step.values()))
    return _of_bars(report, steps, ABLATION) if len(steps) > 1 else None


def _of_bars(report: PaperReport, groups: Sequence[Mapping[str, Row]], panels: Sequence[Panel]) -> Figure | None:
    every = [row for group in groups for row in group.values()]
    if not any(SPEED in row.stats for row in every):
        return None
    titles = {
        name: title for name, title in data_sets(report, "main").items() if any(name in group for group in groups)
    }
    figure, axes_of = marks.sheet(len(panels) // 2, 2, width=10, height=2.1 * len(panels))
    for axes, panel in zip(axes_of, panels, strict=True):
        marks.bars(axes, groups, titles, panel)
    # titles of data sets are long, so the legend is above the panels, where it does not reduce their width
    figure.legend(*axes_of[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return marks.sign(figure, report, every)


def length_scaling_fourpanel(report: PaperReport) -> Figure | None:
    """Speed, L-bar, l-bar and acceptance over text length."""
    return _of_curves(report, rows_of(report, "main"), lambda row: row.length, "T, new tokens", OVER_LENGTH)


def prompt_length_sensitivity(report: PaperReport) -> Figure | None:
    """Speed and speed-up of the longest texts, over maximum prompt length."""
    these = longest(rows_of(report, "prompt_length"))
    unit = these[0].experiment.unit if these else ""
    return _of_curves(report, these, lambda row: row.experiment.most, f"longest prompt ({unit})", SPEEDS)


def _of_curves(
    report: PaperReport, these: Sequence[Row], along: Callable[[Row], int], x: str, panels: Sequence[Panel]
) -> Figure | None:
    lanes = paper_lanes(these)
    shown = [row for row in these if row.lane in lanes]
    if not any(SPEED in row.stats for row in shown):
        return None
    figure, axes_of = marks.sheet(len(panels) // 2, 2, width=10, height=2 + 1.25 * len(panels))
    for axes, panel in zip(axes_of, panels, strict=True):
        for lane in (lane for lane in lanes if not (panel.drafting and lane.method == "ar")):
            known = [row for row in shown if row.lane == lane and panel.key in row.stats]
            drawn = [(along(row), row.stats[panel.key]) for row in known]
            marks.curve(axes, drawn, marks.look(lane.family), marks.label(lane), scale=panel.scale)
        marks.ticks_at(axes, sorted(set(map(along, these))))
        marks.name_axes(axes, title=panel.title, x=x, y=panel.y)
    figure.legend(*axes_of[1].get_legend_handles_labels(), loc="outside upper center", ncols=len(lanes))
    return marks.sign(figure, report, shown)


class HeatMap(NamedTuple):
    """Heat map of a quantity over two parameters of the lanes whose names begin with `lanes`."""

    lanes: str
    panel: Panel
    x: str
    place: Callable[[Mapping[str, Any]], tuple[float, float]]
    """Function from a lane's parameters to (row, column). If lanes share a place, the fastest lane is shown."""


SENSITIVITY = (
    HeatMap(
        "tau_h",
        Panel("(a) thresholds", "τl: the draft is unsure below it", SPEED, written="{:.0f}"),
        "τh: the draft is sure at or above this probability",
        lambda given: (given["tau_l"], given["tau_h"]),
    ),
    HeatMap(
        "branching",
        Panel("(b) breadth", "B_min, children of a node", SPEED, written="{:.0f}"),
        "B_max, children of a node",
        lambda given: (given["branching"][0], given["branching"][2]),
    ),
    HeatMap(
        "d0",
        Panel("(c) depth", "D0, levels", SPEED, written="{:.0f}"),
        "D_max, levels",
        lambda given: (given["d0"], given["d_max"]),
    ),
)
FIXED_TREES = (
    HeatMap(
        "fixed",
        Panel("(a) speed (x ar)", "depth D (levels)", SPEEDUP),
        "branching B (children)",
        lambda given: (given["depth"], given["branching"]),
    ),
    HeatMap(
        "fixed",
        Panel("(b) speed (x ar)", "depth D (levels)", SPEEDUP),
        "threshold τ (probability)",
        lambda given: (given["depth"], given["tau"]),
    ),
    HeatMap(
        "fixed",
        Panel("(c) l-bar (tokens a round)", "depth D (levels)", "paper_path_length"),
        "branching B (children)",
        lambda given: (given["depth"], given["branching"]),
    ),
)


def parameter_sensitivity(report: PaperReport) -> Figure | None:
    """Speed in tokens/s over thresholds, breadths and depths; the caption has the speeds of other methods."""
    return _of_heat_maps(report, "sensitivity", "dynatree", SENSITIVITY)


def fixed_tree_sweep(report: PaperReport) -> Figure | None:
    """Speed-up and l-bar over depth and branching, and speed-up over depth and threshold."""
    return _of_heat_maps(report, "fixed_trees", "fixed", FIXED_TREES)


def _of_heat_maps(report: PaperReport, experiment: str, method: str, maps: Sequence[HeatMap]) -> Figure | None:
    these = longest(rows_of(report, experiment))
    timed = sorted((row for row in these if SPEED in row.stats), key=lambda row: row.stats[SPEED].value)
    trees = [row for row in timed if row.lane.method == method]
    if not trees:
        return None
    figure, axes_of = marks.sheet(1, len(maps), width=13, height=4.4)
    for axes, (lanes, panel, x, place) in zip(axes_of, maps, strict=True):
        swept = [row for row in trees if row.lane.name.startswith(lanes) and panel.key in row.stats]
        if values := {place(row.lane.parameters): row.stats[panel.key].value for row in swept}:
            marks.heat_map(axes, values, panel, x=x)
    others = [f"{marks.label(row.lane)} {row.stats[SPEED].value:.0f}" for row in timed if row not in trees]
    compared = [f"for comparison, tokens/s: {', '.join(others)}"] if others else []
    return marks.sign(figure, report, these, "each cell: the fastest setting with its two values", *compared)


def speed_against_nodes(report: PaperReport) -> Figure | None:
    """Speed-up over the number of verified nodes, with one point per lane. The right axis shows ms per target pass.

    Lanes of the experiment `main` have their names next to their points; settings of sweeps have small marks without
    whiskers.
    """
    by_lane: dict[str, Row] = {}
    for experiment in ("main", "sensitivity", "fixed_trees"):
        for row in longest(rows_of(report, experiment)):
            by_lane.setdefault(row.lane.name, row)
    shown = [row for row in by_lane.values() if row.stats.keys() >= {SPEEDUP, NODES}]
    if not shown:
        return None
    figure, (axes,) = marks.sheet(1, 1, width=10, height=6)
    axes.set_xscale("log", base=2)
    of_main = [row for row in shown if row.experiment.name == "main"]
    _draw_points(axes, shown)
    _draw_costs(axes, report)
    axes.axhline(1, color=marks.DARK, linestyle="--", linewidth=1, zorder=0.9)
    axes.set_xlim(0.8, 2.2 * max(map(_nodes, shown)))
    marks.ticks_at(axes, list(takewhile(lambda nodes: nodes < axes.get_xlim()[1], (1 << power for power in range(16)))))
    marks.name_axes(axes, title="", x="verified nodes per round, including the root (logarithmic)", y="speed (x ar)")
    figure.legend(loc="outside upper center", ncols=5)
    small = "small marks: settings of the sensitivity and fixed-tree experiments"
    marks.sign(figure, report, shown, *[small] * (len(of_main) < len(shown)))
    named = [(marks.label(row.lane), _nodes(row), row.stats[SPEEDUP].value) for row in of_main]
    marks.name_points(figure, axes, named)
    return figure


def _nodes(row: Row) -> float:
    """Rows of the target pass per round: the drafted nodes and the root."""
    return row.stats[NODES].value + 1


def _draw_points(axes: Axes, shown: Sequence[Row]) -> None:
    named: set[str] = set()
    edge: dict[str, Any] = {"linestyle": "", "markeredgecolor": "black", "markeredgewidth": 0.5}
    for row in shown:
        is_main, family = row.experiment.name == "main", row.lane.family
        stat = row.stats[SPEEDUP] if is_main else replace(row.stats[SPEEDUP], low=None, high=None)
        size = {"markersize": 8, "zorder": 3} if is_main else {"markersize": 4, "alpha": 0.6}
        title = "" if family in named else family
        marks.curve(axes, [(_nodes(row), stat)], marks.look(family), title, **edge, **size)
        named.add(family)


def _draw_costs(axes: Axes, report: PaperReport) -> None:
    other = axes.twinx()
    other.spines["right"].set_visible(True)
    other.grid(visible=False)
    other.set_ylabel("time of one target pass over this many rows (ms)")
    costs = zip(report.header.costs.rows, report.header.costs.verify_s, strict=True)
    points = [(rows, Interval(value=duration_s * 1000, low=None, high=None)) for rows, duration_s in costs]
    marks.curve(other, points, LineStyle(marks.DARK, "|", ":"), "cost (right axis)")
    other.set_ylim(bottom=0)
    axes.set_zorder(other.get_zorder() + 1)  # draws the lanes' points in front of the cost curve
    axes.patch.set_visible(False)


FIGURES: Mapping[str, Callable[[PaperReport], Figure | None]] = {
    function.__name__: function
    for function in (
        main_results_bars,
        ablation_progression,
        length_scaling_fourpanel,
        parameter_sensitivity,
        fixed_tree_sweep,
        prompt_length_sensitivity,
        speed_against_nodes,
    )
}
"""Drawing functions by file name, for the paper's figures 3 to 8 and one further figure; they return None if the report
lacks the data of the figure.
"""
FORMATS: Mapping[str, Mapping[str, str | None]] = {"png": {}, "svg": {"Date": None}}
"""File metadata by format; SVG files get no date, so that files of equal figures are equal."""


def pictures(report: PaperReport) -> Iterator[tuple[str, bytes]]:
    """Yields the name and content of each file of each figure."""
    for name, function in FIGURES.items():
        with style.context([dict(marks.SETTINGS)], after_reset=True):
            figure = function(report)
            contents = {kind: _saved(figure, kind) for kind in FORMATS} if figure else {}
        yield from ((f"{name}.{kind}", content) for kind, content in contents.items())


def _saved(figure: Figure, kind: str) -> bytes:
    written = io.BytesIO()
    figure.savefig(written, format=kind, metadata=dict(FORMATS[kind]))
    return written.getvalue()

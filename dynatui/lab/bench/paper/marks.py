"""Style and parts of figures: curves, bars and heat maps of means with their intervals, and the caption under a
figure.
"""

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Affine2D, Bbox

from decoder.analysis.interval import Interval
from decoder.errors import shortened
from dynatui.lab.bench.paper.records import PaperLane
from dynatui.lab.bench.paper.report import PaperReport, Row, device

FONT = "DejaVu Serif"
"""Font of all figures; it is part of matplotlib, so that it is always available."""
SETTINGS: Mapping[str, object] = {
    "font.family": FONT,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 6.0,
    "errorbar.capsize": 2.5,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "savefig.dpi": 150,
    "text.parse_math": False,  # names of models and data sets may contain $, which must not start a formula
    "svg.hashsalt": "dynatui",  # without a fixed salt, the ids of SVG elements would be random
}
"""Parameters for `matplotlib.style.context`."""
COLOURS_OF_VALUES = "cividis"
"""Colour map with monotonically rising lightness, readable for colour-blind readers and in greyscale."""
DARK, MIDDLE, ACCENT = "#333333", "#777777", "#b5472c"
DATA_SET_COLOURS = (ACCENT, "#8fb8d8", "#2e6e4e", "#d9c06c", "#6b5b95", "#bbbbbb", "#1f3d6e", "#e8a598")
"""Colours of data sets, in the order of the bars; WikiText-2 is first, PG-19 second."""
HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "--", "++")
SMALL = 7.5
LETTER = 4.6
"""Average width of a letter at font size `SMALL`, in points."""

Points: TypeAlias = Sequence[tuple[float, Interval]]
"""Points (x, mean of the drawn quantity with its interval) of a curve, in ascending order of x."""


@dataclass(frozen=True)
class LineStyle:
    """Style of a family of lanes."""

    colour: str
    mark: str
    dash: str


LINE_STYLES: Mapping[str, LineStyle] = {
    "ar": LineStyle("#1f3d6e", "o", "--"),
    "linear": LineStyle("#8fc1e6", "^", "-"),
    "fixed": LineStyle("#4fa06e", "s", "-."),
    "dynatree": LineStyle(ACCENT, "D", "-"),
    "alg1": LineStyle("#8c5a2b", "v", ":"),
    "bestfirst": LineStyle("#c9a227", "p", "-"),
    "streaming": LineStyle("#a8a8a8", "X", ":"),
    "auto": LineStyle("#111111", "*", "-"),
    "hf": LineStyle("#7a4f9a", "P", "--"),
}
OTHER = LineStyle("#666666", "h", ":")
"""Style of families that are not in `LINE_STYLES`."""


class Panel(NamedTuple):
    """One panel of a figure: its titles, and the quantity that it shows."""

    title: str
    y: str
    key: str
    scale: float = 1.0
    written: str = "{:.2f}"
    """Format of the values above bars and in heat maps."""
    drafting: bool = False
    """Whether the panel leaves out plain decoding, which has no draft."""


def look(family: str) -> LineStyle:
    return LINE_STYLES.get(family, OTHER)


def label(lane: PaperLane) -> str:
    """Name of the lane in the paper; the lane's own name if the paper does not have the lane."""
    return lane.paper_name or lane.name


def sheet(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """New figure of `width` x `height` inches, and its axes from left to right, then from top to bottom."""
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", wspace=0.05)
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def name_axes(axes: Axes, *, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def printable(text: str) -> str:
    """Text in which characters that the font lacks are replaced by a question mark."""
    font = get_font(findfont(FONT))
    return "".join(letter if letter.isprintable() and font.get_char_index(ord(letter)) else "?" for letter in text)


def curve(axes: Axes, points: Points, look: LineStyle, label: str, *, scale: float = 1.0, **style: Any) -> None:
    """Draws a curve with marks and whiskers; draws nothing if there are no points."""
    if not points:
        return
    drawn = {"color": look.colour, "marker": look.mark, "linestyle": look.dash, "label": label} | style
    stats = [stat.times(scale) for _, stat in points]
    xs, ys = [x for x, _ in points], [stat.value for stat in stats]
    axes.errorbar(xs, ys, yerr=errors(stats), elinewidth=1, **drawn)


def bars(axes: Axes, groups: Sequence[Mapping[str, Row]], titles: Mapping[str, str], panel: Panel) -> None:
    """Draws a group of bars for each method, with whiskers, and a value above each bar.

    Args:
        axes: Axes of the panel.
        groups: For each method, its row by data set.
        titles: Title by data set; each group has the bars of the data sets in this order.
        panel: Quantity and titles.
    """
    width = 0.8 / len(titles)
    for number, (name, title) in enumerate(titles.items()):
        right = width * (number - (len(titles) - 1) / 2)
        stats = {place + right: group[name].stats.get(panel.key) for place, group in enumerate(groups) if name in group}
        known = {place: stat.times(panel.scale) for place, stat in stats.items() if stat}
        drawn: dict[str, Any] = {"edgecolor": DARK, "linewidth": 0.7, "error_kw": {"elinewidth": 1, "ecolor": DARK}}
        colour, hatch = (each[number % len(each)] for each in (DATA_SET_COLOURS, HATCHES))
        drawn |= {"color": colour, "hatch": hatch, "label": printable(title), "yerr": errors([*known.values()])}
        axes.bar(list(known), [stat.value for stat in known.values()], width * 0.92, **drawn)
        for place, stat in known.items():
            top = max(stat.value, stat.high or 0)
            write(axes, panel.written.format(stat.value), (place, top), (0, 3), va="bottom")
    labels = ["\n".join(dict.fromkeys(label(row.lane) for row in group.values())) for group in groups]
    axes.set_xticks(range(len(groups)), labels)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.2)
    axes.set_ylim(bottom=0)
    name_axes(axes, title=panel.title, x="", y=panel.y)


def errors(stats: Sequence[Interval]) -> list[list[float]]:
    """Distances of the lower and upper bounds from the means; if there is no interval, NaN, which draws no whisker."""
    below = [math.nan if stat.low is None else max(stat.value - stat.low, 0) for stat in stats]
    above = [math.nan if stat.high is None else max(stat.high - stat.value, 0) for stat in stats]
    return [below, above]


def write(axes: Axes, text: str, place: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    """Writes text at an offset in points from a place, with a white outline to be readable on top of lines."""
    drawn: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL} | style
    rim = withStroke(linewidth=2, foreground="white")
    axes.annotate(text, place, offset, textcoords="offset points", path_effects=[rim], zorder=6, **drawn)


def ticks_at(axes: Axes, places: Sequence[float]) -> None:
    axes.set_xticks(list(places), [f"{place:g}" for place in places], fontsize=SMALL)
    axes.minorticks_off()


def heat_map(axes: Axes, values: Mapping[tuple[float, float], float], panel: Panel, *, x: str) -> None:
    """Draws values by (row, column) with a number in each cell and a frame around the best; cells can be missing."""
    rows, columns = (sorted({place[side] for place in values}) for side in (0, 1))
    table = [[values.get((row, column), float("nan")) for column in columns] for row in rows]
    axes.imshow(table, cmap=COLOURS_OF_VALUES, aspect="auto", origin="lower")
    axes.set_xticks(range(len(columns)), [f"{column:g}" for column in columns])
    axes.set_yticks(range(len(rows)), [f"{row:g}" for row in rows])
    axes.grid(visible=False)
    name_axes(axes, title=panel.title, x=x, y=panel.y)
    middle = (min(values.values()) + max(values.values())) / 2
    best = max(values, key=lambda place: values[place])
    for place, value in values.items():
        right, up = columns.index(place[1]), rows.index(place[0])
        colour = "black" if value > middle else "white"
        axes.text(right, up, panel.written.format(value), ha="center", va="center", fontsize=8, color=colour)
        if place == best:
            axes.add_patch(Rectangle((right - 0.46, up - 0.46), 0.92, 0.92, fill=False, ls="--", lw=1.8, ec=ACCENT))


def name_points(figure: Figure, axes: Axes, named: Sequence[tuple[str, float, float]]) -> None:
    """Writes each name of `named` (name, x, y) above its point and above earlier names, with a line to the point.

    The figure must be complete except for the names.
    """
    figure.draw_without_rendering()
    to_points = axes.transData + Affine2D().scale(72 / figure.dpi)
    names: list[Bbox] = []
    for name, x, y in sorted(named, key=lambda each: each[2]):
        middle, bottom = to_points.transform((x, y))
        width, height, rise = LETTER * len(name), 1.3 * SMALL, 8.0
        box = Bbox.from_bounds(middle - width / 2, bottom + rise, width, height)
        while box.count_overlaps(names):
            rise += 2
            box = box.translated(0, 2)
        names.append(box)
        line = {"arrowstyle": "-", "color": MIDDLE, "linewidth": 0.6}
        write(axes, name, (x, y), (0, rise + height / 2), arrowprops=line)


CAPTION_SIZE = 7
LETTERS_PER_INCH = 17
"""Average number of characters per inch at font size `CAPTION_SIZE`."""


def sign(figure: Figure, report: PaperReport, these: Sequence[Row], *remarks: str) -> Figure:
    """Writes the caption under a figure, which must be complete except for the caption; returns the figure.

    `these` are all rows of the figure, including rows without a speed; `remarks` have no full stop at the end.
    """
    request, day = report.request, report.header.started_at.partition("T")[0]
    dtypes = " + ".join(dict.fromkeys((request.dtype, request.draft_dtype)))
    titles = ", ".join(dict.fromkeys(row.text_set.title for row in these))
    lengths, prompts = ({getattr(row, name) for row in these} for name in ("length", "prompts"))
    counts = [f"T = {_span(lengths)} new tokens", f"prompts: {_span(prompts)}"]
    intervals = any(stat.low is not None for row in these for stat in row.stats.values())
    if intervals and any(axes.containers for axes in figure.axes):
        counts.append("whiskers: 95 % intervals of the mean over prompts")
    notes = [*remarks]
    if any(row.same < row.prompts for row in these):
        notes.append("speeds include only prompts on which the text equals the text of ar")
    if not report.complete:
        notes.append("the measurement is not complete")
    lines = (
        f"target {shortened(request.target)}, draft {shortened(request.draft)} · {device(report)}, {dtypes} · {day}",
        " · ".join([titles, *counts]),
        "; ".join(notes),
    )
    width = int(figure.get_figwidth() * LETTERS_PER_INCH)
    wrapped = [part for line in lines for part in textwrap.wrap(printable(line), width)]
    figure.supxlabel("\n".join(wrapped), x=0.01, ha="left", fontsize=CAPTION_SIZE, color=DARK)
    return figure


def _span(values: Collection[int]) -> str:
    return " to ".join(map(str, dict.fromkeys((min(values), max(values)))))

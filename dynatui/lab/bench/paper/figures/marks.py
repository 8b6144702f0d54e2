"""Style and parts of figures: curves, bars and heat maps of means with their intervals, and the caption under a
figure.
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Affine2D, Bbox, Transform
from numpy.typing import NDArray

from decoder.analysis.interval import Interval
from decoder.errors import shortened
from dynatui.lab.bench.paper.records import PaperLane
from dynatui.lab.bench.paper.report import SPEED, PaperReport, Points, Row, Table, device, label, lanes_of, without

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


def look(family: str) -> LineStyle:
    return LINE_STYLES.get(family, OTHER)


def sheet(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, NDArray[np.object_]]:
    """New figure of `width` x `height` inches, and its axes as an array of shape (rows, columns)."""
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", wspace=0.05)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, axes


def name_axes(axes: Axes, *, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def right_axis(axes: Axes, y: str) -> Axes:
    """New axes with the same x axis, and with a second y axis, labelled `y`, on the right."""
    other = axes.twinx()
    other.spines["right"].set_visible(True)
    other.grid(visible=False)
    other.set_ylabel(y)
    return other


def printable(text: str) -> str:
    """Text in which characters that the font lacks are replaced by a question mark."""
    font = get_font(findfont(FONT))
    return "".join(letter if letter.isprintable() and font.get_char_index(ord(letter)) else "?" for letter in text)


LEAST_ROOM = 0.06
"""Minimum distance between two ticks with numbers, as a fraction of the x axis."""
SMALL = 7.5
LETTER = 4.6
"""Average width of a letter at font size `SMALL`, in points."""


def curve(axes: Axes, points: Points, look: LineStyle, label: str, *, scale: float = 1.0, **style: Any) -> None:
    """Draws a curve with marks and whiskers; draws nothing if there are no points."""
    if not points:
        return
    drawn = {"color": look.colour, "marker": look.mark, "linestyle": look.dash, "label": label} | style
    stats = [stat for _, stat in points]
    axes.errorbar([x for x, _ in points], means(stats, scale), yerr=errors(stats, scale), elinewidth=1, **drawn)


def bars(
    axes: Axes,
    places: Sequence[float],
    stats: Sequence[Interval],
    width: float,
    texts: Sequence[str],
    *,
    fontsize: float = SMALL,
    **style: Any,
) -> None:
    """Draws bars with whiskers, and a text above each bar."""
    drawn: dict[str, Any] = {"edgecolor": DARK, "linewidth": 0.7, "error_kw": {"elinewidth": 1, "ecolor": DARK}} | style
    axes.bar(places, means(stats), width, yerr=errors(stats), **drawn)
    for place, stat, text in zip(places, stats, texts, strict=True):
        write(axes, text, (place, _ends(stat)[1]), (0, 3), va="bottom", fontsize=fontsize)


def means(stats: Sequence[Interval], scale: float = 1.0) -> list[float]:
    return [stat.value * scale for stat in stats]


def errors(stats: Sequence[Interval], scale: float = 1.0) -> list[list[float]]:
    """Distances of the lower and upper bounds from the means; if there is no interval, NaN, which draws no whisker."""
    below = [math.nan if stat.low is None else (stat.value - _ends(stat)[0]) * scale for stat in stats]
    above = [math.nan if stat.high is None else (_ends(stat)[1] - stat.value) * scale for stat in stats]
    return [below, above]


def write(axes: Axes, text: str, place: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    """Writes text at an offset in points from a place, with a white outline to be readable on top of lines."""
    drawn: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL} | style
    rim = withStroke(linewidth=2, foreground="white")
    axes.annotate(text, place, offset, textcoords="offset points", path_effects=[rim], zorder=6, **drawn)


def level(axes: Axes, y: float) -> None:
    axes.axhline(y, color=DARK, linestyle="--", linewidth=1, zorder=0.9)


def ticks_at(axes: Axes, places: Sequence[float]) -> None:
    """Sets ticks at these x values only; ticks too close to the previous numbered tick have no number."""
    axes.set_xticks(list(places))
    axes.minorticks_off()
    across = axes.transScale + axes.transLimits
    texts, last = [], -1.0
    for place in places:
        here = float(across.transform((place, 1))[0])
        texts.append(f"{place:g}" if here - last >= LEAST_ROOM else "")
        last = here if texts[-1] else last
    axes.set_xticklabels(texts)


def confine(axes: Axes, bottom: float, top: float) -> None:
    """Scales the y axis so that data and ticks lie between the fractions `bottom` and `top` of the axis's height."""
    low, high = axes.get_ylim()
    whole = (high - low) / (top - bottom)
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    axes.set_ylim(low - bottom * whole, high + (1 - top) * whole)
    axes.set_yticks(ticks)


def heat_map(axes: Axes, values: Table, written: Callable[[float], str]) -> None:
    """Draws a heat map with a number in each cell and a frame around the best cell; unmeasured cells are white."""
    rows, columns = (sorted({place[side] for place in values}) for side in (0, 1))
    table = [[values.get((row, column), float("nan")) for column in columns] for row in rows]
    axes.imshow(table, cmap=COLOURS_OF_VALUES, aspect="auto", origin="lower")
    axes.set_xticks(range(len(columns)), [f"{column:g}" for column in columns])
    axes.set_yticks(range(len(rows)), [f"{row:g}" for row in rows])
    axes.grid(visible=False)
    middle = (min(values.values()) + max(values.values())) / 2
    best = max(values, key=lambda place: values[place])
    for (row, column), value in values.items():
        x, y = columns.index(column), rows.index(row)
        colour = "black" if value > middle else "white"
        axes.text(x, y, written(value), ha="center", va="center", fontsize=8, color=colour)
        if (row, column) == best:
            axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, ls="--", lw=1.8, ec=ACCENT))


def name_points(
    figure: Figure, axes: Axes, named: Sequence[tuple[str, float, float]], occupied: Sequence[tuple[float, Interval]]
) -> None:
    """Writes each name of `named` (name, x, y) near its point, with a line to the point and with little overlap.

    The figure must be complete except for the names. `occupied` has all points and whiskers that names should not
    overlap.
    """
    figure.draw_without_rendering()
    to_points = Affine2D().scale(72 / figure.dpi)
    sheet = axes.bbox.transformed(to_points)
    marks = [_covered(axes.transData + to_points, x, stat) for x, stat in occupied]
    names: list[Bbox] = []
    for name, x, y in named:
        left, bottom = (axes.transData + to_points).transform((x, y))
        box = min(_near(left, bottom, len(name)), key=partial(_hidden, sheet, names, marks))
        names.append(box)
        offset = (box.x0 + box.x1) / 2 - left, (box.y0 + box.y1) / 2 - bottom
        write(axes, name, (x, y), offset, arrowprops={"arrowstyle": "-", "color": MIDDLE, "linewidth": 0.6})


def _near(left: float, bottom: float, letters: int) -> list[Bbox]:
    """Rectangles, in typographic points, for the name of a data point; the nearest rectangle is first."""
    width, height = LETTER * letters, 1.3 * SMALL
    return [
        Bbox.from_bounds(
            left + math.cos(angle) * (distance + width / 2) - width / 2,
            bottom + math.sin(angle) * distance - height / 2,
            width,
            height,
        )
        for distance in range(12, 84, 8)
        for angle in (math.pi / 8 * turn for turn in (1, 7, -1, -7, 2, 6, -2, -6, 4, -4, 3, 5, -3, -5, 0, 8))
    ]


def _hidden(sheet: Bbox, names: Sequence[Bbox], marks: Sequence[Bbox], box: Bbox) -> float:
    """Cost of a rectangle: 100 if it extends beyond the axes, plus 10 for each overlapped name and 1 for each mark."""
    outside = box.x0 < sheet.x0 or box.x1 > sheet.x1 or box.y0 < sheet.y0 or box.y1 > sheet.y1
    return float(100 * outside + 10 * box.count_overlaps(names) + box.count_overlaps(marks))


def _covered(to_points: Transform, x: float, stat: Interval) -> Bbox:
    (left, bottom), (right, top) = to_points.transform([(x, end) for end in _ends(stat)])
    return Bbox.from_extents(left - 5, bottom - 5, right + 5, top + 5)


def _ends(stat: Interval) -> tuple[float, float]:
    """Lower and upper end of the whisker; if there is no interval, each end is the mean."""
    low = stat.value if stat.low is None else min(stat.value, stat.low)
    high = stat.value if stat.high is None else max(stat.value, stat.high)
    return low, high


SIZE = 7
LETTERS_PER_INCH = 17
"""Average number of characters per inch at font size `SIZE`."""
MOST_NAMES = 5


def sign(figure: Figure, report: PaperReport, these: Sequence[Row], *remarks: str) -> Figure:
    """Writes the caption under a figure, which must be complete except for the caption; returns the figure.

    `these` are all rows of the figure, including rows without a speed; `remarks` have no full stop at the end.
    """
    width = int(figure.get_figwidth() * LETTERS_PER_INCH)
    lines = [_machine(report), _texts(these), "; ".join([*_missing(report, these), *remarks])]
    wrapped = [part for line in lines for part in textwrap.wrap(printable(line), width)]
    figure.supxlabel("\n".join(wrapped), x=0.01, ha="left", fontsize=SIZE, color=DARK)
    return figure


def _machine(report: PaperReport) -> str:
    request = report.header.request
    dtypes = " + ".join(dict.fromkeys((request.dtype, request.draft_dtype)))
    day = report.header.started_at.partition("T")[0]
    return f"target {shortened(request.target)}, draft {shortened(request.draft)} · {device(report)}, {dtypes} · {day}"


def _texts(these: Sequence[Row]) -> str:
    titles = ", ".join(dict.fromkeys(row.text_set.title for row in these))
    lengths, prompts = (_span([getattr(row.cell, name) for row in these]) for name in ("length", "prompts"))
    whiskers = "whiskers: 95 % intervals of the mean over prompts"
    intervals = any(stat.low is not None for row in these for stat in row.cell.stats.values())
    return " · ".join([titles, f"T = {lengths} new tokens", f"prompts: {prompts}", *[whiskers] * intervals])


def _missing(report: PaperReport, these: Sequence[Row]) -> Iterator[str]:
    """Remarks on lanes that have no speed on some or all prompts, and on an incomplete measurement."""
    absent = without(these, SPEED)
    differing = {row.lane.name for row in these if row.cell.same < row.cell.prompts}
    partly = [lane for lane in lanes_of(these) if lane.name in differing and lane not in absent]
    if absent:
        yield f"no speed is shown for {listed(absent)}: the text differs from the text of ar"
    if partly:
        yield f"the speed of {listed(partly)} includes only prompts on which the text equals the text of ar"
    if not report.complete:
        yield "the measurement is not complete"


def listed(lanes: Sequence[PaperLane]) -> str:
    """Labels separated by commas, or only their number if there are more than `MOST_NAMES`."""
    return ", ".join(map(label, lanes)) if len(lanes) <= MOST_NAMES else f"{len(lanes)} lanes"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"

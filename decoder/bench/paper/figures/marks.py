"""What figures are made of: curves, bars and heat maps of means with their intervals. Knows no report."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D, Bbox, Transform

from decoder.bench.paper.figures.cells import Points, Table
from decoder.bench.paper.figures.style import ACCENT, COLOURS_OF_VALUES, DARK, Look
from decoder.bench.paper.report import Stat

LEAST_ROOM = 0.06
"""Share of the x axis that a number takes."""
NAME_SIZE = 7.5
NAME_WIDTH = 4.6
"""Of a letter, in points."""
NAME_RISES = (7, -7, 0, 15, -15, 24, -24, 34, -34)
"""How far above its point a name may stand, in points; best first."""


def curve(axes: Axes, points: Points, look: Look, label: str, *, scale: float = 1.0, **style: Any) -> None:
    """A line with marks and intervals; nothing where there are no points."""
    if not points:
        return
    drawn = {"color": look.colour, "marker": look.mark, "linestyle": look.dash, "label": label} | style
    stats = [stat for _, stat in points]
    axes.errorbar([x for x, _ in points], means(stats, scale), yerr=errors(stats, scale), elinewidth=1, **drawn)


def bars(axes: Axes, places: Sequence[float], stats: Sequence[Stat], width: float, **style: Any) -> None:
    """A bar each with its interval."""
    drawn: dict[str, Any] = {"edgecolor": DARK, "linewidth": 0.7, "error_kw": {"elinewidth": 1, "ecolor": DARK}} | style
    axes.bar(places, means(stats), width, yerr=errors(stats), **drawn)


def means(stats: Sequence[Stat], scale: float = 1.0) -> list[float]:
    """Their middles."""
    return [stat.mean * scale for stat in stats]


def errors(stats: Sequence[Stat], scale: float = 1.0) -> list[list[float]]:
    """How far intervals reach below and above the mean; 0 where there is none."""
    below = [0.0 if stat.low is None else max(0.0, stat.mean - stat.low) * scale for stat in stats]
    above = [0.0 if stat.high is None else max(0.0, stat.high - stat.mean) * scale for stat in stats]
    return [below, above]


def above_bars(
    axes: Axes, places: Sequence[float], stats: Sequence[Stat], texts: Sequence[str], size: float = 7
) -> None:
    """Writes a text above each bar and its interval."""
    for place, stat, text in zip(places, stats, texts, strict=True):
        top = stat.mean if stat.high is None else max(stat.mean, stat.high)
        axes.annotate(text, (place, top), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=size)


def star(axes: Axes, x: float, y: float) -> None:
    """Marks the best."""
    axes.plot([x], [y], marker="*", markersize=15, color=ACCENT, markeredgecolor="black", linestyle="", zorder=5)


def ticks_at(axes: Axes, places: Sequence[float]) -> None:
    """Ticks at these places of the x axis and nowhere else, with numbers where there is room for them."""
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
    """Lets what is drawn fill this part of the height, with ticks there alone; the axis need not begin at 0."""
    low, high = axes.get_ylim()
    whole = (high - low) / (top - bottom)
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    axes.set_ylim(low - bottom * whole, high + (1 - top) * whole)
    axes.set_yticks(ticks)


def heat_map(axes: Axes, values: Table, written: Callable[[float], str]) -> None:
    """Values as numbers on colours, the best one framed; white: not measured."""
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
    figure: Figure, axes: Axes, named: Sequence[tuple[str, float, float]], occupied: Sequence[tuple[float, Stat]]
) -> None:
    """Writes a name beside each point, where it hides least of points, whiskers and other names.

    Args:
        figure: Complete but for these names: where its points lie on the sheet is known only then.
        axes: Where the points are.
        named: (name, x, y).
        occupied: All points by their x.
    """
    figure.draw_without_rendering()
    in_points = axes.transData + Affine2D().scale(72 / figure.dpi)
    taken = [_box(in_points, x, stat) for x, stat in occupied]
    for name, x, y in named:
        left, bottom = in_points.transform((x, y))
        size = NAME_WIDTH * len(name), 1.2 * NAME_SIZE
        offsets = [(side * (8 + size[0] / 2), rise) for rise in NAME_RISES for side in (1, -1)]
        boxes = [_around(left + right, bottom + up, *size) for right, up in offsets]
        box, offset = min(zip(boxes, offsets, strict=True), key=lambda each: each[0].count_overlaps(taken))
        taken.append(box)
        axes.annotate(name, (x, y), offset, textcoords="offset points", ha="center", va="center", fontsize=NAME_SIZE)


def _box(in_points: Transform, x: float, stat: Stat) -> Bbox:
    """What a mark and its whisker cover."""
    ends = [end for end in (stat.low, stat.mean, stat.high) if end is not None]
    (left, bottom), (right, top) = in_points.transform([(x, min(ends)), (x, max(ends))])
    return Bbox.from_extents(left - 5, bottom - 4, right + 5, top + 4)


def _around(x: float, y: float, width: float, height: float) -> Bbox:
    return Bbox.from_bounds(x - width / 2, y - height / 2, width, height)

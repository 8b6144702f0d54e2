"""Look of all figures: fonts, colours, marks, layout. Knows no measurement."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from numpy.typing import NDArray

FONT = "DejaVu Serif"
"""Font that ships with matplotlib."""
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
    "text.parse_math": False,  # a dollar in the name of a model or a data set is a dollar
    "svg.hashsalt": "dynatui",  # else names of SVG elements are random
}
"""Parameters of `matplotlib.style.context`."""
COLOURS_OF_VALUES = "cividis"
"""Colour map of rising lightness, for colour-blind readers and in grey."""
DARK, MIDDLE, ACCENT = "#333333", "#777777", "#b5472c"
DATA_SET_COLOURS = (ACCENT, "#8fb8d8", "#2e6e4e", "#d9c06c", "#6b5b95", "#bbbbbb", "#1f3d6e", "#e8a598")
"""Colours of data sets: WikiText-2 first, PG-19 second."""
HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "--", "++")
MARKS = "o^sDvPXp"


@dataclass(frozen=True)
class Look:
    """Look of a family of lanes: colour, mark and dash; each of them alone tells it from others."""

    colour: str
    mark: str
    dash: str


LOOKS: Mapping[str, Look] = {
    "ar": Look("#1f3d6e", "o", "--"),
    "linear": Look("#8fc1e6", "^", "-"),
    "fixed": Look("#4fa06e", "s", "-."),
    "dynatree": Look(ACCENT, "D", "-"),
    "alg1": Look("#8c5a2b", "v", ":"),
    "bestfirst": Look("#c9a227", "p", "-"),
    "streaming": Look("#a8a8a8", "X", ":"),
    "auto": Look("#111111", "*", "-"),
    "hf": Look("#7a4f9a", "P", "--"),
}
OTHER = Look("#666666", "h", ":")
"""Look of families that are not listed."""


def look(family: str) -> Look:
    """Look of a family."""
    return LOOKS.get(family, OTHER)


def sheet(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, NDArray[np.object_]]:
    """Figure of `width` x `height` inches, and its axes as rows x columns."""
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", wspace=0.05)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, axes


def name_axes(axes: Axes, *, title: str, x: str, y: str) -> None:
    """Title and axis labels with units."""
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def right_axis(axes: Axes, y: str) -> Axes:
    """Second y axis on the same x, with its unit."""
    other = axes.twinx()
    other.spines["right"].set_visible(True)
    other.grid(visible=False)
    other.set_ylabel(y)
    return other


def printable(text: str) -> str:
    """Text without characters that the font lacks."""
    font = get_font(findfont(FONT))
    return "".join(letter if letter.isprintable() and font.get_char_index(ord(letter)) else "?" for letter in text)

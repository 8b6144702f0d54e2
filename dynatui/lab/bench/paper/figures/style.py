"""Style of all figures. This module does not depend on measurements."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from numpy.typing import NDArray

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
class Look:
    """Style of a family of lanes."""

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
"""Style of families that `LOOKS` does not have."""


def look(family: str) -> Look:
    return LOOKS.get(family, OTHER)


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
    """New axes with a second y axis on the right, labelled `y`, and the same x axis."""
    other = axes.twinx()
    other.spines["right"].set_visible(True)
    other.grid(visible=False)
    other.set_ylabel(y)
    return other


def printable(text: str) -> str:
    """Text in which characters that the font lacks are replaced by a question mark."""
    font = get_font(findfont(FONT))
    return "".join(letter if letter.isprintable() and font.get_char_index(ord(letter)) else "?" for letter in text)

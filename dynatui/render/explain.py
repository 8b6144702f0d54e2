"""Figures that explain themselves: name, formula and what other engines call it, from where they are defined."""

from collections.abc import Iterable
from textwrap import wrap

from decoder.analysis.metrics import FIGURES, Figure
from dynatui.render.ink import Row, Rows, column, width_of

_NAME, _LEAST = 18, 12
_BY_KEY = {figure.key: figure for figure in FIGURES}


def explained(keys: Iterable[str], width: int, height: int) -> Rows:
    """The figures under a blank row, as many as there is room for."""
    rows: Rows = [()]
    for key in keys:
        told = _rows(_BY_KEY[key], width)
        if len(rows) + len(told) > height:
            break
        rows += told
    return rows if len(rows) > 1 else []


def led_by(keys: Iterable[str]) -> list[str]:
    """The keys first, then those of all other figures."""
    first = list(keys)
    return [*first, *(key for key in _BY_KEY if key not in first)]


def _rows(figure: Figure, width: int) -> Rows:
    """Name and formula, and in the same row, if it fits, what other engines call it."""
    row: Row = ((column(figure.label, _NAME), "strong"), (f"= {figure.formula}", "plain"))
    if not figure.elsewhere:
        return [row]
    elsewhere = f"elsewhere: {figure.elsewhere}"
    joint: Row = (*row, (f"   {elsewhere}", "dim"))
    if width_of(joint) <= width:
        return [joint]
    indent = _NAME + len("= ")
    told = wrap(elsewhere, max(_LEAST, width - indent))
    return [row, *(((" " * indent + words, "dim"),) for words in told)]

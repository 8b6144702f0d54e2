"""Position of each level of a tree: a column from left to right, or an indent where columns have no room.

Knows widths alone. Levels without room beside the first ones continue in a band below them, from the left again; a
numbered arrow leads there, which takes cells at the end of the one row and at the beginning of the other.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

_STEP = 2
"""Cells of an indent."""
_LEAST_LABEL, _ENOUGH = 3, 10
"""Least cells of a label, and cells from which an indented label is not cut for the next level."""
LEAST_COLUMNS = 34
"""Cells of a row from which levels are columns: most rows then have room for three."""


class Look(NamedTuple):
    """A way to draw labels as columns."""

    figures: int
    """Figures in each label."""
    more: int
    """Cells of the figures beyond the first."""
    least: int
    """Least cells of a label."""
    gap: int
    """Cells from a label to the line between siblings."""
    lead: int
    """Cells from the line between siblings to the next label."""
    aside: int = 0
    """Cells kept free at the right."""


class Level(NamedTuple):
    """Position of the nodes of one depth."""

    band: int
    line: int
    """The cell of the line between siblings."""
    label: int
    """The first cell of the labels."""
    room: int
    """Cells of a label."""
    beside: bool = False
    """Whether it follows the labels of the previous level in the same rows."""

    @property
    def end(self) -> int:
        """The first cell after the labels."""
        return self.label + self.room


def levels(widest: Sequence[int], looks: Sequence[Look], width: int, arrow: int) -> tuple[list[Level], Look]:
    """The level of the root, which has a row for itself, and as many others as fit, with the look of all labels.

    `widest` is the width of the widest label of each depth from 1, with one figure; `arrow` that of a numbered arrow.
    The look is the first of `looks`, the richest first, whose columns need one band, else the last, in as few bands as
    possible; then labels become as wide as possible without another band.
    """
    close = looks[-1]
    if width < LEAST_COLUMNS:
        return _indents(len(widest), width, arrow), close

    def columns(look: Look, most: int) -> list[Level]:
        return _columns([min(most, cells + look.more) for cells in widest], width - look.aside, look, arrow)

    look = next((look for look in looks if columns(look, look.least)[-1].band == 0), close)
    bands = columns(look, look.least)[-1].band
    wider = range(max(widest, default=0) + look.more, look.least, -1)
    place = bisect_left(wider, True, key=lambda most: columns(look, most)[-1].band <= bands)
    return columns(look, wider[place] if place < len(wider) else look.least), look


def _columns(rooms: Sequence[int], width: int, look: Look, arrow: int) -> list[Level]:
    """Columns for labels of these widths, as many in a band as fit."""
    levels = [Level(0, 0, 0, width)]
    for depth, room in enumerate(rooms, 1):
        last, after = levels[-1], (arrow + 1) * (depth < len(rooms))
        line = last.end + look.gap
        beside = depth > 1 and line + 1 + look.lead + room + after <= width
        if not beside:
            line = arrow * (depth > 1)
        label = line + 1 + look.lead
        band = last.band + (depth > 1 and not beside)
        levels.append(Level(band, line, label, min(room, width - label - after), beside))
    return levels


def _indents(depth: int, width: int, arrow: int) -> list[Level]:
    """Indents, as many in a band as leave labels half of the width; empty where half is too little for any label."""
    levels, least = [Level(0, 0, 0, width)], min(_ENOUGH, width // 2 - _STEP)
    arrows = arrow if depth * _STEP + least > width else 0
    after = arrows + (arrows > 0)
    if least < _LEAST_LABEL or arrows + _STEP + least + after > width:
        return levels
    for _ in range(depth):
        last = levels[-1]
        turns = len(levels) > 1 and last.label + _STEP + least + after > width
        line = arrow if turns else last.label
        levels.append(Level(last.band + turns, line, line + _STEP, width - line - _STEP - after))
    return levels

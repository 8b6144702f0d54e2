"""Position of each level of a tree: a column, from left to right, or an indent if columns do not fit.

Knows only widths. Levels that do not fit in the width are drawn in another band of rows below, again from the left. A
row that continues in the next band ends in a numbered arrow, and its continuation begins with the same arrow; `levels`
reserves cells for both arrows.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

_STEP = 2
_LEAST_LABEL, _ENOUGH = 3, 10
"""Widths in cells: the least width of any label, and the width that a further indent must leave for labels."""
LEAST_COLUMNS = 34
"""Least width of a row, in cells, at which levels are columns; such a row usually has room for three levels."""


class Look(NamedTuple):
    figures: int
    """In each label."""
    more: int
    """Width of all figures except the first."""
    least: int
    gap: int
    """Distance from a label to the line between siblings, in cells."""
    lead: int
    """Distance from the line between siblings to the next label, in cells."""
    aside: int = 0
    """Number of cells at the right that labels leave free for other figures of the row."""


class Level(NamedTuple):
    band: int
    line: int
    """Column of the line between siblings."""
    label: int
    """Column of the first cell of the labels."""
    room: int
    beside: bool = False
    """Whether the level is drawn to the right of the previous level, in the same rows."""

    @property
    def end(self) -> int:
        return self.label + self.room


def levels(widest: Sequence[int], looks: Sequence[Look], width: int, arrow: int) -> tuple[list[Level], Look]:
    """The levels that fit, and the look: the richest whose columns fit in one band, else the last, with as few bands as
    possible.
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
    """Only the level of the root if `width` is too small for an indent."""
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

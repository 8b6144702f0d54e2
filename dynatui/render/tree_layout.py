"""Positions of a tree's nodes, from label widths alone: levels are columns (in several bands if needed) or indents."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

_STEP = 2
_LEAST_LABEL, _ENOUGH = 3, 10
"""Widths in cells: the least width of any label, and the width that a further indent must leave for labels."""
LEAST_COLUMNS = 34
"""Least width of a row, in cells, at which levels are columns; such a row usually has room for three levels."""


class LabelStyle(NamedTuple):
    figures: int
    """Number of figures in each label."""
    more: int
    """Width of all figures of a label except the first, in cells."""
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


def levels(
    widest: Sequence[int], looks: Sequence[LabelStyle], width: int, arrow: int
) -> tuple[list[Level], LabelStyle]:
    """The levels, and the first style with which they fit in one band; else the last style, with the fewest bands."""
    close = looks[-1]
    if width < LEAST_COLUMNS:
        return _indents(len(widest), width, arrow), close

    def columns(look: LabelStyle, most: int) -> list[Level]:
        return _columns([min(most, cells + look.more) for cells in widest], width - look.aside, look, arrow)

    look = next((look for look in looks if columns(look, look.least)[-1].band == 0), close)
    bands = columns(look, look.least)[-1].band
    wider = range(max(widest, default=0) + look.more, look.least, -1)
    place = bisect_left(wider, True, key=lambda most: columns(look, most)[-1].band <= bands)
    return columns(look, wider[place] if place < len(wider) else look.least), look


def _columns(rooms: Sequence[int], width: int, look: LabelStyle, arrow: int) -> list[Level]:
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
    """Levels as indents; only the level of the root if `width` is too small for an indent."""
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


class LabelLine(NamedTuple):
    text: str
    node: int | None = None


class Arrow(NamedTuple):
    text: str
    node: int
    """The first node after the arrow."""


class Slot(NamedTuple):
    node: int
    cells: int


PlacedRow: TypeAlias = list[LabelLine | Arrow | Slot]


@dataclass(frozen=True)
class TreeLayout:
    rows: Sequence[PlacedRow]
    shown: frozenset[int]
    look: LabelStyle
    """The chosen style of the labels; if levels are indents, it is the last style given to `laid_out`."""
    end: int
    """First column to the right of all labels except the root's label."""


def laid_out(
    parents: Sequence[int],
    ranked: Sequence[int],
    accepted: Sequence[int],
    labels: Mapping[int, int],
    looks: Sequence[LabelStyle],
    size: tuple[int, int],
) -> TreeLayout:
    """The nodes that fit, in rows. `ranked`: nodes by priority, each after its parent. `labels`: width of each ranked
    node's label with one figure. If nodes are omitted, one row stays free for a note.
    """
    width, height = size
    depth = _depths(parents, ranked)
    placed_levels, look = levels(_widest(depth, labels), looks, width, len(str(max(1, height))) + 1)
    shown = _fitting_nodes(parents, ranked, depth, placed_levels, height)
    end = max((level.end for level in placed_levels[1:]), default=0)
    return TreeLayout(_placed(parents, shown, accepted, placed_levels), frozenset(shown), look, end)


def _depths(parents: Sequence[int], ranked: Sequence[int]) -> dict[int, int]:
    """Depth of each node; a node that comes before its parent in `ranked` gets no depth."""
    depths = {0: 0}
    for node in ranked:
        if node > 0 and parents[node] in depths:
            depths[node] = depths[parents[node]] + 1
    return depths


def _widest(depth: Mapping[int, int], labels: Mapping[int, int]) -> list[int]:
    widest = [0] * (max(depth.values()) + 1)
    for node, level in depth.items():
        widest[level] = max(widest[level], labels[node])
    return widest[1:]


def _fitting_nodes(
    parents: Sequence[int], ranked: Sequence[int], depth: Mapping[int, int], levels: Sequence[Level], height: int
) -> set[int]:
    """The nodes that fit in `height` rows: all nodes, or as many as leave one row free."""
    rest = [node for node in ranked if 0 < depth.get(node, 0) < len(levels)]
    beside = {number for number, level in enumerate(levels) if level.beside}
    continued = {parents[node] for node in rest if depth[node] in beside}
    if 1 + len(rest) == len(parents) and len(parents) - len(continued) <= height:
        return {0, *rest}
    shown, taken, rows = {0}, set[int](), 1
    for node in rest:
        parent = parents[node]
        free = depth[node] in beside and parent not in taken
        if parent in shown and (free or rows < height - 1):
            shown.add(node)
            taken.add(parent)
            rows += not free
    return shown


class _Place(NamedTuple):
    node: int
    depth: int
    part: int
    """Part 0 contains the root; every further part continues a numbered arrow."""
    before: str
    """Text to the left of the line between siblings, if the node begins a row."""
    last: bool
    joins: bool


def _placed(
    parents: Sequence[int], shown: set[int], accepted: Sequence[int], levels: Sequence[Level]
) -> list[PlacedRow]:
    """Rows of the shown nodes, depth first; a part that continues an arrow comes after the part with that arrow."""
    first, children = set(accepted), dict[int, list[int]]()
    for node in sorted(shown - {0}, key=lambda node: (node not in first, node)):
        children.setdefault(parents[node], []).append(node)
    parts: list[list[PlacedRow]] = [[[Slot(0, levels[0].room)]]]
    waiting = _places(children.get(0, []), 1, 0, "", joins=False)
    while waiting:
        place = waiting.pop()
        level, rows, nodes = levels[place.depth], parts[place.part], children.get(place.node)
        _add(rows, place, level, levels[place.depth - 1])
        if not nodes:
            continue
        after, part = levels[place.depth + 1], place.part
        before = place.before + (" " if place.last else "│")
        if after.band > level.band:
            part, before = len(parts), ""
            rows[-1].append(Arrow(f" →{part}", nodes[0]))
            parts.append([[Arrow(f"{part}→".ljust(after.line, "─"), nodes[0])]])
        joins = after.beside or after.band > level.band
        waiting += _places(nodes, place.depth + 1, part, before.ljust(after.line), joins=joins)
    return [row for rows in parts for row in rows]


def _places(nodes: Sequence[int], depth: int, part: int, before: str, *, joins: bool) -> list[_Place]:
    """Siblings as a stack, the first on top; if `joins`, the first sibling continues the row of the parent or arrow."""
    first, last = nodes[:1], nodes[-1:]
    return [_Place(node, depth, part, before, node in last, joins and node in first) for node in reversed(nodes)]


def _add(rows: list[PlacedRow], place: _Place, level: Level, parents: Level) -> None:
    """Adds a node to the rows, with the line that leads to it."""
    lead = "─" * (level.label - level.line - 1)
    if place.joins:
        gap = " ".ljust(level.line - parents.end, "─") if level.beside else ""
        rows[-1].append(LabelLine(f"{gap}{'─' if place.last else '┬'}{lead}", place.node))
    else:
        rows.append([LabelLine(place.before), LabelLine(f"{'╰' if place.last else '├'}{lead}", place.node)])
    rows[-1].append(Slot(place.node, level.room))

"""The rows of a tree: row and cell of each shown node, and the lines between nodes.

Knows only numbers and widths: no round, no ink, no text except lines. If levels are columns, the first child is to the
right of its parent, in the same row, and its siblings are in rows below; so a chain is one row. If levels are indents,
all children are in rows below their parent. The root always has the first row to itself. The accepted child comes
first, then its siblings by rank, so the accepted path is one straight row. If the next level is in another band (see
`tree_levels`), the row ends in a numbered arrow; the children are in a lower row, which begins with the same arrow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dynatui.render.tree_levels import Level, Look, levels


class Line(NamedTuple):
    text: str
    node: int | None = None


class Arrow(NamedTuple):
    text: str
    node: int
    """The first node after the arrow."""


class Slot(NamedTuple):
    node: int
    cells: int


PlacedRow: TypeAlias = list[Line | Arrow | Slot]


@dataclass(frozen=True)
class Layout:
    rows: Sequence[PlacedRow]
    shown: frozenset[int]
    look: Look
    """The chosen look of the labels: if levels are indents, it is the last of the looks given to `laid_out`."""
    end: int
    """First column to the right of all labels except the root's label."""


def laid_out(
    parents: Sequence[int],
    ranked: Sequence[int],
    accepted: Sequence[int],
    labels: Mapping[int, int],
    looks: Sequence[Look],
    size: tuple[int, int],
) -> Layout:
    """The nodes that fit, in rows. `ranked`: nodes by priority, each after its parent. `labels`: width of each ranked
    node's label with one figure. If nodes are omitted, one row stays free for a note.
    """
    width, height = size
    depth = _depths(parents, ranked)
    placed_levels, look = levels(_widest(depth, labels), looks, width, len(str(max(1, height))) + 1)
    shown = _fitting_nodes(parents, ranked, depth, placed_levels, height)
    end = max((level.end for level in placed_levels[1:]), default=0)
    return Layout(_placed(parents, shown, accepted, placed_levels), frozenset(shown), look, end)


def _depths(parents: Sequence[int], ranked: Sequence[int]) -> dict[int, int]:
    """A node that comes before its parent in `ranked` gets no depth."""
    depths = {0: 0}
    for node in ranked:
        if node > 0 and parents[node] in depths:
            depths[node] = depths[parents[node]] + 1
    return depths


def _widest(depth: Mapping[int, int], labels: Mapping[int, int]) -> list[int]:
    widest = [0] * max(depth.values())
    for node, level in depth.items():
        if level > 0 and labels[node] > widest[level - 1]:
            widest[level - 1] = labels[node]
    return widest


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
    """To the left of the line between siblings, if the node begins a row."""
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
    """A stack, the first sibling on top; if `joins`, it continues the row of its parent or arrow."""
    return [
        _Place(node, depth, part, before, node == nodes[-1], joins and node == nodes[0]) for node in reversed(nodes)
    ]


def _add(rows: list[PlacedRow], place: _Place, level: Level, parents: Level) -> None:
    """Adds a node to the rows, with the line that leads to it."""
    lead = "─" * (level.label - level.line - 1)
    if place.joins:
        gap = " ".ljust(level.line - parents.end, "─") if level.beside else ""
        rows[-1].append(Line(f"{gap}{'─' if place.last else '┬'}{lead}", place.node))
    else:
        rows.append([Line(place.before), Line(f"{'╰' if place.last else '├'}{lead}", place.node)])
    rows[-1].append(Slot(place.node, level.room))

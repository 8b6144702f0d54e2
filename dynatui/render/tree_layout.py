"""Positions of a tree's nodes, from label widths alone: levels are columns (in several bands if needed) or indents."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from rich.cells import cell_len

from decoder.events import Round
from dynatui.render import rounds
from dynatui.render.ink import Ink, Row, best, column

FigureName: TypeAlias = Literal["prob.", "chance", "kept"]

LEAST_CELLS = 10
"""Width in cells of a short label with the line that leads to it."""
_LONGEST = 18
_SHORTEST, _LEAST = 5, 3
"""Least width of mark and token in cells: the first value if figures follow, the second value if a remark follows."""
_FIGURE = 3
_TIMES = 4
_LIKELY, _POSSIBLE, _UNLIKELY = 0.5, 0.2, 0.05
"""Thresholds of the probability that the verifier keeps a sampled node; at each threshold the node's colour changes."""


@dataclass(frozen=True)
class Labels:
    event: Round
    marked: int | None
    tells_kept: bool
    """Whether the last figure is the probability that the verifier keeps the node."""
    accepted: frozenset[int]
    names: Mapping[int, str]
    chances: Mapping[int, float]
    """Probability in the last figure of each drafted node."""
    figures: Mapping[int, str]
    times: Mapping[int, str]
    """How often a node was sampled, if more than once."""
    copies: Mapping[int, int] = field(default_factory=dict)

    @property
    def figure_names(self) -> tuple[FigureName, ...]:
        if self.tells_kept:
            return "prob.", "kept"
        return ("prob.", "chance") if self.event.draft_logprobs else ("prob.",)

    def cells(self, node: int) -> int:
        name = min(_LONGEST, cell_len(self.names[node]))
        if node in self.copies:
            return name + len(f" rep. {self.copies[node]}")
        figure = 1 + len(self.figures[node]) if node in self.figures else 0
        return name + len(self.times.get(node, "")) + figure

    def label(self, node: int, cells: int, figures: int) -> Row:
        if node in self.copies:
            return self._remarked(node, cells)
        name, ink = self.names[node], self.ink(node)
        if node not in self.figures:
            return ((column(name, cells), ink),)
        last, times, first = f" {self.figures[node]}", self.times.get(node, ""), ""
        if figures > 1:
            logprob = (self.event.draft_logprobs or self.event.logprobs)[node]
            last, first = last.rjust(1 + _FIGURE), f" {rounds.chance_percent(rounds.probability(logprob))}"
        room, needed = cells - len(times) - len(first) - len(last), cell_len(name)
        if room < min(needed, _SHORTEST):
            return ((column(name, cells), ink),)
        token = name + " " * (room - needed) if needed <= room else column(name, room)
        between: Row = ((times, "strong"), (first, "dim")) if times or first else ()
        figure_ink: Ink = "dim" if ink == "plain" else ink
        if self.tells_kept and ink != "caret":
            figure_ink = kept_ink(self.chances[node])
        return ((token, ink), *between, (last, figure_ink))

    def _remarked(self, node: int, cells: int) -> Row:
        """The name, and the remark that the path repeats earlier text."""
        name, copy = self.names[node], self.copies[node]
        needed, long = cell_len(name), f" repeats {copy} tokens"
        words = long if min(needed, _SHORTEST) + len(long) <= cells else f" rep. {copy}"
        room = min(needed, max(_LEAST, cells - len(words)))
        return ((column(name, min(room, cells)), self.ink(node)), (column(words, cells - room), "warn"))

    def ink(self, node: int) -> Ink:
        if node == self.marked:
            return "caret"
        return "accepted" if node in self.accepted else "plain" if node in self.figures else "strong"


def labels(event: Round, nodes: Iterable[int], marked: int | None) -> Labels:
    reach = event.verification.reach if event.verification and rounds.is_drawn(event) else []
    names, chances = dict[int, str](), dict[int, float]()
    for node in nodes:
        names[node] = f"{rounds.mark(event, node)} {rounds.piece_text(event.pieces[node])}".removeprefix(" ")
        if rounds.is_drafted(event, node):
            drawn = rounds.probability(event.logprobs[node])
            chances[node] = rounds.kept_chance(event, node) or 0.0 if reach else drawn
    figures = {node: rounds.chance_percent(chance) for node, chance in chances.items()}
    times = {node: best(_TIMES, f" x{count}") for node, count in enumerate(event.drawn) if count > 1}
    return Labels(event, marked, bool(reach), frozenset(event.accepted), names, chances, figures, times)


def kept_ink(chance: float) -> Ink:
    if chance >= _LIKELY:
        return "good"
    return "second" if chance >= _POSSIBLE else "bar" if chance >= _UNLIKELY else "dim"


_STEP = 2
_LEAST_LABEL, _ENOUGH = 3, 10
"""Widths in cells: the least width of any label, and the width that a further indent must leave for labels."""
LEAST_COLUMNS = 34
"""Least width of a row, in cells, at which levels are columns; such a row usually has room for three levels."""


class LabelStyle(NamedTuple):
    figures: int
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
    widest = [0] * max(depth.values())
    for node, level in depth.items():
        if level:
            widest[level - 1] = max(widest[level - 1], labels[node])
    placed_levels, look = levels(widest, looks, width, len(str(max(1, height))) + 1)
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
    lead = "─" * (level.label - level.line - 1)
    if place.joins:
        gap = " ".ljust(level.line - parents.end, "─") if level.beside else ""
        rows[-1].append(LabelLine(f"{gap}{'─' if place.last else '┬'}{lead}", place.node))
    else:
        rows.append([LabelLine(place.before), LabelLine(f"{'╰' if place.last else '├'}{lead}", place.node)])
    rows[-1].append(Slot(place.node, level.room))

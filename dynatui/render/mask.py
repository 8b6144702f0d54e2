"""The tree's attention mask in the target's verification pass.

Each row and each column stands for a node, in the order of the pass. If there are more nodes than rows, two nodes share
a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.events import Round
from dynatui.number_format import nth
from dynatui.render.ink import Ink, Row, Rows, column, frame, inside, merged
from dynatui.render.rounds import mark, path_logprobs, path_to, piece_text, ranked, shown_round
from dynatui.render.scene import Scene
from dynatui.render.wrap import wrapped

_LONGEST_NAME = 14
_SHORTEST_NAME = 5
_HALVES = " ▄▀█"
_NOTES = (
    "A filled cell: the row's token sees the column's token. This is the attention mask of the one pass that checks "
    "the tree; every row sees also all of the preceding text.",
    "a filled cell: the row sees the column",
)


@dataclass(frozen=True)
class _Matrix:
    event: Round
    nodes: Sequence[int]
    """In the order of the verification pass."""
    visible: Sequence[frozenset[int]]
    """The node itself and its ancestors."""
    marked: int | None
    wide: int
    """Cells of a column."""
    name: int
    """Cells of a row's label."""


def mask(scene: Scene, width: int, height: int) -> Rows:
    event, size = shown_round(scene), (width, height)
    inner, room = inside(size)
    if event is None:
        hint: Row = (("attention between the guesses of the tree, once there is a tree", "dim"),)
        return frame((("Mask", "title"),), [hint], size)
    total = len(event.tokens)
    notes, halves = _plan(total, inner, room, may_halve=scene.symbols != "ascii")
    rows = max(1, room - 1 - len(notes))
    count = min(total, rows * (1 + halves), max(1, inner))
    if count < total:
        notes = [*notes[:-1], ((f"+ {total - count} more nodes; {_NOTES[-1]}", "dim"),)] if notes else []
    matrix = _matrix(scene, event, count, inner, halves=halves)
    marks = merged([(mark(event, node).ljust(matrix.wide), _ink(matrix, node)) for node in matrix.nodes])
    body = [
        ((" " * (matrix.name + (matrix.name > 0)), "plain"), *marks),
        *(_halved(matrix) if halves else _rows(matrix)),
    ]
    body += [()] * (room - len(notes) - len(body))
    title: Row = (("Mask", "title"), (f" ─ round {nth(event.round)}: who sees whom", "dim"))
    return frame(title, [*body, *notes], size)


def _plan(total: int, width: int, room: int, *, may_halve: bool) -> tuple[Rows, bool]:
    """The longest note that leaves room for all nodes, or the shortest; and whether two nodes share a row."""
    notes = [rows for note in _NOTES if 3 * len(rows := wrapped([(note, "dim")], width)) <= room]
    for halves in (False, True)[: 1 + may_halve]:
        for rows in notes:
            if total <= (room - 1 - len(rows)) * (1 + halves):
                return rows, halves
    return notes[-1] if notes else [], may_halve


def _matrix(scene: Scene, event: Round, count: int, width: int, *, halves: bool) -> _Matrix:
    nodes = sorted(ranked(event, path_logprobs(event))[:count])
    wide = 2 if not halves and 2 * count + _SHORTEST_NAME <= width else 1
    free = width - wide * count - 1
    names = min(free, _LONGEST_NAME * (1 + halves))
    token = scene.inspected
    return _Matrix(
        event,
        nodes,
        [frozenset(path_to(event, node)) for node in nodes],
        token.node if token else None,
        wide,
        names if names >= _SHORTEST_NAME * (1 + halves) else 0,
    )


def _rows(matrix: _Matrix) -> Rows:
    rows: Rows = []
    for node, visible in zip(matrix.nodes, matrix.visible, strict=True):
        accepted = node in matrix.event.accepted
        filled: tuple[str, Ink] = ("█" if accepted else "▒") * matrix.wide, "accepted" if accepted else "bar"
        blank: tuple[str, Ink] = "·".ljust(matrix.wide), "frame"
        cells = [filled if other in visible else blank for other in matrix.nodes]
        rows.append((*_label(matrix, [node], matrix.name), *merged(cells)))
    return rows


def _halved(matrix: _Matrix) -> Rows:
    """Each row shows two nodes."""
    rows: Rows = []
    for place in range(0, len(matrix.nodes), 2):
        pair, visible = matrix.nodes[place : place + 2], matrix.visible[place : place + 2]
        cells = list[tuple[str, Ink]]()
        for other in matrix.nodes:
            filled = [other in sees for sees in visible]
            is_accepted = any(full and node in matrix.event.accepted for full, node in zip(filled, pair, strict=True))
            cells.append((_HALVES[2 * filled[0] + sum(filled[1:])], "accepted" if is_accepted else "bar"))
        rows.append((*_label(matrix, pair, matrix.name // 2), *merged(cells)))
    return rows


def _label(matrix: _Matrix, nodes: Sequence[int], room: int) -> Row:
    if matrix.name == 0:
        return ()
    texts = [f"{mark(matrix.event, node) or ' '} {piece_text(matrix.event.pieces[node])}" for node in nodes]
    cells = [(column(text, room), _ink(matrix, node)) for text, node in zip(texts, nodes, strict=True)]
    blank = matrix.name + 1 - room * len(nodes)
    return (*cells, (" " * blank, "plain"))


def _ink(matrix: _Matrix, node: int) -> Ink:
    if node == matrix.marked:
        return "caret"
    return "accepted" if node in matrix.event.accepted else "plain"

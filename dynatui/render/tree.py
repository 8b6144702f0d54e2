"""The draft tree of a round, or the tree's attention mask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from decoder.analysis.metrics import drafted_nodes
from decoder.events import LENGTH, LOST, Limit, Round
from dynatui.number_format import nth, short
from dynatui.render import rounds
from dynatui.render.guide import caption
from dynatui.render.ink import Ink, Row, Rows, Span, best, best_row, column, frame, inside, merged, wrapped
from dynatui.render.rounds import mark, path_logprobs, path_to, piece_text, ranked, shown_round
from dynatui.render.scene import Scene
from dynatui.render.tree_rows import MOST, Sign, drawn_path, drawn_tree, past_trees, titles
from dynatui.render.words import shape_sentence

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
    """The shown nodes, in the order of the verification pass."""
    visible: Sequence[frozenset[int]]
    """For each shown node, the nodes that it attends to: the node itself and its ancestors."""
    marked: int | None
    wide: int
    """Width of a column, in cells."""
    name: int
    """Width of a row's label, in cells; 0 without labels."""


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
    head: Row = ((" " * (matrix.name + (matrix.name > 0)), "plain"), *marks)
    body = [head, *_rows(matrix, 1 + halves)]
    body += [()] * (room - len(notes) - len(body))
    title: Row = (("Mask", "title"), (f" ─ round {nth(event.round)}: who sees whom", "dim"))
    return frame(title, [*body, *notes], size)


def _plan(total: int, width: int, room: int, *, may_halve: bool) -> tuple[Rows, bool]:
    """The longest note that leaves room for all nodes, else the shortest note; and whether two nodes share a row."""
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
    name = names if names >= _SHORTEST_NAME * (1 + halves) else 0
    visible = [frozenset(path_to(event, node)) for node in nodes]
    return _Matrix(event, nodes, visible, token.node if token else None, wide, name)


def _rows(matrix: _Matrix, together: int) -> Rows:
    """Each row shows one node, or two nodes as upper and lower halves of its cells."""
    rows: Rows = []
    for place in range(0, len(matrix.nodes), together):
        nodes, visible = matrix.nodes[place : place + together], matrix.visible[place : place + together]
        cells = list[Span]()
        for other in matrix.nodes:
            filled = [other in sees for sees in visible]
            accepted = any(full and node in matrix.event.accepted for full, node in zip(filled, nodes, strict=True))
            ink: Ink = "accepted" if accepted else "bar"
            if together == 1:
                whole: Span = (("█" if accepted else "▒") * matrix.wide, ink)
                cells.append(whole if filled[0] else ("·".ljust(matrix.wide), "frame"))
            else:
                cells.append((_HALVES[2 * filled[0] + sum(filled[1:])], ink))
        rows.append((*_label(matrix, nodes, matrix.name // together), *merged(cells)))
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


_ALONE: Mapping[Limit | None, str] = {
    "cost": "the target decodes alone: guesses would cost more time than they save",
    "context": "the target decodes alone: the context has no room for guesses",
    LOST: "the target decodes alone: the draft's logits are NaN or infinite",
    LENGTH: "the text ends with this token: no guess could have become text",
    None: "the target decodes alone",
}
_GROWN: Mapping[Sign, str] = {
    "prob.": "prob.: how likely the draft finds it.",
    "chance": "chance: how likely the target keeps it.",
    "path": "path: the same for its whole row.",
}
_SAMPLED: Mapping[Sign, str] = {
    "x2": "x2: the token was sampled twice.",
    "prob.": "prob.: the draft's probability of the token at this temperature.",
    "kept": "kept: how likely the verifier keeps it, given this tree.",
}
_TITLE = len("╭─ Tree ─  ─╮")
_FEW = 1
"""Maximum number of earlier trees on a slow connection: each round moves all these trees, which costs bytes."""
_LEAST = 4
"""Least number of rows at which the panel shows more than the accepted path."""


def tree(scene: Scene, width: int, height: int) -> Rows:
    if scene.mask:
        return mask(scene, width, height)
    event = rounds.shown_round(scene)
    inner, room = inside((width, height))
    if event is None:
        return frame((("Tree", "title"),), [(("each round grows a tree of guesses here", "dim"),)], (width, height))
    progress = best(width - _TITLE, *titles(event, scene.held_stage.name if scene.held_stage else "committed"))
    title: Row = (("Tree", "title"), (f" ─ {progress}", "dim"))
    if room < _LEAST:
        return _brief(scene, event, title, (width, height))
    token = scene.inspected
    marked = token.node if token else None
    below = caption(scene, inner, room // 2) if scene.panel == "tree" else []
    room -= len(below)
    drawing = drawn_tree(event, inner, room - 1, rounds.before(scene, event), marked=marked)
    body = drawing.rows
    if drafted_nodes(event) == 0 and event.knobs is not None:
        reason = _ALONE.get(event.limited_by, _ALONE[None])
        body += wrapped(((reason, "dim"),), inner)[: max(0, room - 1 - len(body))]
    explained = [row for words in _explained(scene, event, drawing.signs) for row in wrapped(((words, "dim"),), inner)]
    free = room - 1 - len(body) - len(explained)
    if free <= 0:
        explained, free = [], room - 1 - len(body)
    most = _FEW if scene.meters.slow_line else MOST
    past = past_trees(rounds.earlier(scene, most), inner, free - 1)
    body += [()] * (1 if past else free) + explained
    return frame(title, [*body, _ending(scene, event, inner), *below, *past], (width, height))


def _brief(scene: Scene, event: Round, title: Row, size: tuple[int, int]) -> Rows:
    """The accepted path and the last line of the panel; without a frame, the title is a row of its own."""
    inner, room = inside(size)
    path = drawn_path(event, inner, 2).rows[-1:]
    above = [title] if room == size[1] else []
    return frame(title, [*above, *path, _ending(scene, event, inner)][:room], size)


def _explained(scene: Scene, event: Round, signs: frozenset[Sign]) -> list[str]:
    arrow = ["→1: continues at 1→."] * ("arrow" in signs)
    if rounds.is_drawn(event):
        expected = event.verification.predicted_tokens if event.verification else None
        outcome = f"This tree gave {len(event.accepted) + 1} tokens;"
        expectation = [] if expected is None else [f"{outcome} {short(expected)} were expected."]
        shape = shape_sentence(scene.state, event)
        return [*([f"{shape}."] if shape else []), *expectation, _meanings(signs, _SAMPLED), *arrow]
    return [_meanings(signs, _GROWN), *arrow]


def _meanings(signs: frozenset[Sign], meanings: Mapping[Sign, str]) -> str:
    named = "kept, bar, colour" if "bar" in signs else "kept, colour"
    return " ".join(words.replace("kept", named, 1) for sign, words in meanings.items() if sign in signs)


def _ending(scene: Scene, event: Round, width: int) -> Row:
    if event.draft_forwards is None:
        return (("this method does not report its draft", "dim"),)
    stage = scene.held_stage
    if stage is not None and stage.name == "drafted":
        return (("○ a guess", "plain"), ("  the target has not verified it yet", "dim"))
    bonus = rounds.bonus_of(scene, event)
    wordings = [*(_legends(event) if drafted_nodes(event) else [()])]
    if bonus is not None:
        token: Span = (rounds.piece_text(bonus.text), "bonus")
        pairs = [(legend, label) for legend in wordings for label in ("target: ", "")]
        wordings = [(*legend, (f"{'  ' if legend else ''}+ {label}", "dim"), token) for legend, label in pairs]
    return best_row(width, *wordings)


def _legends(event: Round) -> list[Row]:
    origins = set(event.origins[1:])
    if "lookup" not in origins:
        return [(("● accepted", "accepted"), ("  ○ rejected", "plain"))]
    drafted, missed = ("●", "○") if "draft" in origins else ("", "")
    accepted: Span = (f"{drafted}◆ accepted", "accepted")
    looked_up: Span = ("  ◆◇ looked up", "dim")
    return [(accepted, (f"  {missed}◇ rejected", "plain"), looked_up), (accepted, looked_up)]

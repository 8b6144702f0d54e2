"""The draft tree of a round, or the tree's attention mask."""

from collections.abc import Mapping

from decoder.analysis.metrics import drafted_nodes
from decoder.events import LENGTH, LOST, Limit, Round
from dynatui.number_format import nth, short
from dynatui.render import rounds
from dynatui.render.guide import caption
from dynatui.render.ink import Ink, Row, Rows, Span, best, best_row, column, frame, inside, merged, titled, wrapped
from dynatui.render.rounds import mark, piece_text
from dynatui.render.scene import Scene
from dynatui.render.tree_rows import MOST, Sign, drawn_path, drawn_tree, past_trees, titles
from dynatui.render.words import shape_sentence

_LONGEST_NAME = 14
_SHORTEST_NAME = 5
_NOTE = (
    "A filled cell: the row's token sees the column's token. This is the attention mask of the one pass that checks "
    "the tree; every row sees also all of the preceding text."
)
_BRIEF_NOTE = "a filled cell: the row sees the column"


def _mask(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    """A row and a column for each node, in the order of the verification pass; the least probable nodes give way."""
    event, token = rounds.shown_round(scene), scene.inspected
    if event is None:
        return titled("Mask"), [(("attention between the guesses of the tree, once there is a tree", "dim"),)]
    total, notes = len(event.tokens), wrapped([(_NOTE, "dim")], width)
    if total + 1 + len(notes) > height:
        notes = [((_BRIEF_NOTE, "dim"),)]
    count = max(1, min(total, width, height - 1 - len(notes)))
    if count < total:
        notes = [((f"+ {total - count} more nodes; {_BRIEF_NOTE}", "dim"),)]
    nodes = sorted(rounds.ranked(event, rounds.path_logprobs(event))[:count])
    cell = 2 if 2 * count + _SHORTEST_NAME <= width else 1
    name = min(width - cell * count - 1, _LONGEST_NAME)
    inks: dict[int, Ink] = {node: "accepted" if node in event.accepted else "plain" for node in nodes}
    if token is not None and token.node in inks:
        inks[token.node] = "caret"
    labels = [""] * count
    if name >= _SHORTEST_NAME:
        labels = [column(f"{mark(event, node) or ' '} {piece_text(event.pieces[node])}", name) + " " for node in nodes]
    rows = [((" " * len(labels[0]), "plain"), *merged([(mark(event, node).ljust(cell), inks[node]) for node in nodes]))]
    for node, label in zip(nodes, labels, strict=True):
        seen = rounds.path_to(event, node)
        filled: Span = ("█" * cell, "accepted") if node in event.accepted else ("▒" * cell, "bar")
        cells = [filled if other in seen else ("·".ljust(cell), "frame") for other in nodes]
        rows.append(((label, inks[node]), *merged(cells)))
    rows += [()] * (height - len(notes) - len(rows))
    return titled("Mask", f"round {nth(event.round)}: who sees whom"), [*rows, *notes]


_ALONE: Mapping[Limit | None, str] = {
    "cost": "the target decodes alone: guesses would cost more time than they save",
    "context": "the target decodes alone: the context has no room for guesses",
    LOST: "the target decodes alone: the draft's logits are NaN or infinite",
    LENGTH: "the text ends with this token: no guess could have become text",
}
_GROWN: Mapping[Sign, str] = {
    "prob.": "prob.: how likely the draft finds it.",
    "chance": "chance: how likely the target keeps it.",
    "path": "path: their product from the root.",
    "arrow": "→1: continues at 1→.",
}
_SAMPLED: Mapping[Sign, str] = {
    "x2": "x2: the token was sampled twice.",
    "prob.": "prob.: the draft's probability of the token at this temperature.",
    "kept": "kept, colour: how likely the verifier keeps it, given this tree.",
    "arrow": "→1: continues at 1→.",
}
_TITLE = len("╭─ Tree ─  ─╮")
_FEW = 1
"""Maximum number of earlier trees on a slow connection: each round moves all these trees, which costs bytes."""
_LEAST = 4
"""Least number of rows at which the panel shows more than the accepted path."""


def tree(scene: Scene, width: int, height: int) -> Rows:
    size = width, height
    inner, room = inside(size)
    if scene.mask:
        return frame(*_mask(scene, inner, room), size)
    event = rounds.shown_round(scene)
    if event is None:
        return frame(titled("Tree"), [(("each round grows a tree of guesses here", "dim"),)], size)
    stage, ending = scene.held_stage, _ending(scene, event, inner)
    title = titled("Tree", best(width - _TITLE, *titles(event, stage.name if stage else "committed")))
    if room < _LEAST:
        path = drawn_path(event, inner, 2).rows[-1:]
        return frame(title, [*([title] if room == height else []), *path, ending][:room], size)
    below = caption(scene, inner, room // 2) if scene.panel == "tree" else []
    room -= len(below) + 1
    token = scene.inspected
    drawing = drawn_tree(event, inner, room, rounds.before(scene, event), marked=token.node if token else None)
    body = drawing.rows
    if drafted_nodes(event) == 0 and event.knobs is not None:
        reason = _ALONE.get(event.limited_by, "the target decodes alone")
        body += wrapped([(reason, "dim")], inner)[: max(0, room - len(body))]
    explained = [row for words in _explained(scene, event, drawing.signs) for row in wrapped([(words, "dim")], inner)]
    if len(body) + len(explained) >= room:
        explained = []
    free = room - len(body) - len(explained)
    past = past_trees(rounds.earlier(scene, _FEW if scene.meters.slow_line else MOST), inner, free - 1)
    return frame(title, [*body, *[()] * (1 if past else free), *explained, ending, *below, *past], size)


def _explained(scene: Scene, event: Round, signs: frozenset[Sign]) -> list[str]:
    """What the shape of a sampled tree, the expectation, and the shown signs mean."""
    drawn, sentences = rounds.is_drawn(event), list[str]()
    if drawn and (shape := shape_sentence(scene.state, event)):
        sentences.append(f"{shape}.")
    if drawn and event.verification and event.verification.predicted_tokens is not None:
        expected = short(event.verification.predicted_tokens)
        sentences.append(f"This tree gave {len(event.accepted) + 1} tokens; {expected} were expected.")
    meanings = _SAMPLED if drawn else _GROWN
    return [*sentences, " ".join(words for sign, words in meanings.items() if sign in signs)]


def _ending(scene: Scene, event: Round, width: int) -> Row:
    """The legend, and the token that the target added to the accepted path."""
    stage, bonus = scene.held_stage, rounds.bonus_of(scene, event)
    if event.draft_forwards is None:
        return (("this method does not report its draft", "dim"),)
    if stage is not None and stage.name == "drafted":
        return (("○ a guess", "plain"), ("  the target has not verified it yet", "dim"))
    legend: Row = (("● accepted", "accepted"), ("  ○ rejected", "plain")) if drafted_nodes(event) else ()
    if "lookup" in event.origins:
        legend = (("●◆ accepted", "accepted"), ("  ◆◇ looked up", "dim"))
    if bonus is None:
        return legend
    token: Span = (piece_text(bonus.text), "bonus")
    gap = "  " if legend else ""
    return best_row(width, (*legend, (f"{gap}+ target: ", "dim"), token), (*legend, (f"{gap}+ ", "dim"), token))

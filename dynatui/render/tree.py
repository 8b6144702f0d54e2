"""The draft tree of a round (its nodes, their probabilities, the accepted path), or the tree's attention mask."""

from collections.abc import Mapping

from decoder.analysis.metrics import drafted_nodes
from decoder.events import LENGTH, LOST, Limit, Round
from dynatui.number_format import short
from dynatui.render import rounds
from dynatui.render.captions import caption
from dynatui.render.drawn import shape_sentence
from dynatui.render.ink import Row, Rows, best, best_row, frame, inside
from dynatui.render.mask import mask
from dynatui.render.scene import Scene
from dynatui.render.tree_past import MOST, past_trees
from dynatui.render.tree_rows import Sign, drawn_path, drawn_tree
from dynatui.render.tree_title import titles
from dynatui.render.wrap import wrapped

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
_LARGE = (38, 23), (61, 18)
"""A panel that is at least as large as one of these sizes (columns, rows) shows several earlier trees beside others."""
_FEW, _SEVERAL = 1, 6
"""Every round moves them, which costs a slow line bytes."""
_LEAST = 4
"""Least number of rows for more than the accepted path."""


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
    past = past_trees(rounds.earlier(scene, _most_past(scene, width, height)), inner, free - 1)
    if free > 0:
        body += [()] * (1 if past else free) + explained
    else:
        body += [()] * (room - 1 - len(body))
    return frame(title, [*body, _ending(scene, event, inner), *below, *past], (width, height))


def _most_past(scene: Scene, width: int, height: int) -> int:
    if scene.maximised:
        return MOST
    return _SEVERAL if any(width >= columns and height >= rows for columns, rows in _LARGE) else _FEW


def _brief(scene: Scene, event: Round, title: Row, size: tuple[int, int]) -> Rows:
    """Without a frame, the title begins the panel."""
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
        return (("this method does not show its draft", "dim"),)
    stage = scene.held_stage
    if stage is not None and stage.name == "drafted":
        return (("○ a guess", "plain"), ("  the target has not verified it yet", "dim"))
    bonus = rounds.bonus_of(scene, event)
    wordings = [*(_legends(event) if drafted_nodes(event) else [()])]
    if bonus is not None:
        token = rounds.piece_text(bonus.text)
        wordings = [
            (*legend, (f"{'  ' if legend else ''}+ {label}", "dim"), (token, "bonus"))
            for legend in wordings
            for label in ("target: ", "")
        ]
    return best_row(width, *wordings)


def _legends(event: Round) -> list[Row]:
    origins = set(event.origins[1:])
    if "lookup" not in origins:
        return [(("● accepted", "accepted"), ("  ○ rejected", "plain"))]
    if "draft" not in origins:
        return [
            (("◆ accepted", "accepted"), ("  ◇ rejected", "plain"), ("  ◆◇ looked up", "dim")),
            (("◆ accepted", "accepted"), ("  ◆◇ looked up", "dim")),
        ]
    return [
        (("●◆ accepted", "accepted"), ("  ○◇ rejected", "plain"), ("  ◆◇ looked up", "dim")),
        (("●◆ accepted", "accepted"), ("  ◆◇ looked up", "dim")),
    ]

"""The draft tree of a round: what was proposed, how probable it was, what the target accepted; or its mask."""

from collections.abc import Mapping

from decoder.analysis.metrics import drafted_nodes
from decoder.events import LENGTH, Limit, Round
from dynatui.number_format import nth, short
from dynatui.render import rounds
from dynatui.render.captions import caption
from dynatui.render.drawn import shape_written, told_shape
from dynatui.render.ink import Row, Rows, best, frame, inside, width_of
from dynatui.render.mask import mask
from dynatui.render.scene import Scene
from dynatui.render.tree_rows import Sign, drawn_tree
from dynatui.render.wrap import wrapped

_ALONE: Mapping[Limit | None, str] = {
    "cost": "the target goes on alone: guesses would cost more time than they save",
    "context": "the target goes on alone: the context has no room for guesses",
    LENGTH: "the text ends with this token: no guess could have become text",
    None: "the target goes on alone",
}
_TITLE = len("╭─ Tree ─  ─╮")


def tree(scene: Scene, width: int, height: int) -> Rows:
    """A round's tree in a frame: the inspected token's, the one that is held half-way, or the newest."""
    if scene.mask:
        return mask(scene, width, height)
    event = rounds.shown_round(scene)
    inner, room = inside((width, height))
    if event is None:
        return frame((("Tree", "title"),), [(("each round grows a tree of guesses here", "dim"),)], (width, height))
    progress = best(width - _TITLE, *_with_stall(event, _progress(scene, event)))
    title: Row = (("Tree", "title"), (f" ─ {progress}", "dim"))
    token = scene.inspected
    marked = token.node if token else None
    told = caption(scene, inner, room // 2) if scene.panel == "tree" else []
    room -= len(told)
    body, signs = drawn_tree(event, inner, room - 1, rounds.before(scene, event), marked=marked)
    if drafted_nodes(event) == 0 and event.knobs is not None:
        why = _ALONE.get(event.limited_by, _ALONE[None])
        body += wrapped(((why, "dim"),), inner)[: max(0, room - 1 - len(body))]
    explained = [row for words in _explained(scene, event, signs) for row in wrapped(((words, "dim"),), inner)]
    if len(body) + len(explained) < room - 1:
        body += [()] * (room - 1 - len(body) - len(explained)) + explained
    body += [()] * (room - 1 - len(body))
    body.append(_ending(scene, event, inner))
    return frame(title, [*body, *told], (width, height))


def _explained(scene: Scene, event: Round, signs: frozenset[Sign]) -> list[str]:
    """What the signs mean; of a drawn tree, what was drawn, and what came of it, too."""
    arrow = ["→1: goes on at 1→."] * ("arrow" in signs)
    if rounds.is_drawn(event):
        found = event.verification
        told = [] if found is None or found.predicted_tokens is None else [_expected(event, found.predicted_tokens)]
        shape = [f"{words}." for words in told_shape(scene.state, event)[:1]]
        return [*shape, *told, _drawn(signs), *arrow]
    return [*([_sampled(signs)] if event.draft_logprobs else []), *arrow]


def _sampled(signs: frozenset[Sign]) -> str:
    """The figures of a tree that goes by chances."""
    own = "prob.: the draft's own probability. " if "prob." in signs else ""
    named = "chance, path" if "path" in signs else "chance"
    return f"{own}{named}: how likely it is the target's token, given the random noise, the same for every method."


def _drawn(signs: frozenset[Sign]) -> str:
    """The figures of a tree that was drawn."""
    named = "kept, bar, colour" if "bar" in signs else "kept, colour"
    told: Mapping[Sign, str] = {
        "x2": "x2: drawn twice, where paths agree.",
        "prob.": "prob.: the draft's probability of the token at this temperature, by which it was drawn.",
        "kept": f"{named}: how likely the verifier keeps it, given this tree.",
    }
    return " ".join(words for sign, words in told.items() if sign in signs)


def _expected(event: Round, predicted: float) -> str:
    return f"Of this tree {short(predicted)} tokens were expected, {len(event.accepted) + 1} came."


def _progress(scene: Scene, event: Round) -> tuple[str, ...]:
    """What has become of the round so far, in wordings from the longest to the shortest."""
    drafted, accepted, stage = drafted_nodes(event), len(event.accepted), scene.held
    name = f"round {nth(event.round)}: "
    if not drafted and event.draft_forwards is not None:
        told = "no draft" if event.draft_forwards == 0 else "no guess kept"
        if event.limited_by == LENGTH:
            told = "the last token"
        return f"{name}{told}", told
    if stage is not None and stage.name == "drafted":
        return f"{name}{drafted} drafted, not yet verified", f"{name}{drafted} drafted, unverified", "not yet verified"
    if stage is not None and stage.name == "verified":
        told = f"{drafted} drafted, {accepted} pass, not yet committed"
        return f"{name}{told}", f"{name}{accepted} pass, uncommitted", "not yet committed"
    plain = f"{name}{drafted} drafted, {accepted} accepted", f"{name}{accepted} of {drafted} accepted"
    if event.shape is None:
        return plain
    shape = shape_written(event.shape)
    return (
        f"{name}{drafted} drawn as {shape}, {accepted} accepted",
        f"{name}{shape}, {accepted} of {drafted} kept",
        *plain,
    )


def _with_stall(event: Round, wordings: tuple[str, ...]) -> tuple[str, ...]:
    """The wordings, of a stalled round with what it lost."""
    if not event.stalled_s:
        return wordings
    stalled = f"stalled {short(event.stalled_s)} s"
    return (*(f"{words}, {stalled}" for words in wordings), stalled)


def _ending(scene: Scene, event: Round, width: int) -> Row:
    if event.draft_forwards is None:
        return (("this method does not show its draft", "dim"),)
    stage = scene.held
    if stage is not None and stage.name == "drafted":
        return (("○ a guess", "plain"), ("  the target has not looked at it yet", "dim"))
    bonus = rounds.bonus_of(scene, event)
    shown = [*(_legends(event) if drafted_nodes(event) else [()])]
    if bonus is not None:
        token = rounds.piece_text(bonus.text)
        shown = [
            (*legend, (f"{'  ' if legend else ''}+ {told}", "dim"), (token, "bonus"))
            for legend in shown
            for told in ("target: ", "")
        ]
    return next((row for row in shown if width_of(row) <= width), shown[-1])


def _legends(event: Round) -> list[Row]:
    """What the marks mean, in wordings from the longest to the shortest."""
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

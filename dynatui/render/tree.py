"""The draft tree of a round: what was proposed, how probable it was, what the target accepted; or its mask."""

from collections.abc import Mapping, Sequence

from decoder.analysis.metrics import drafted_nodes
from decoder.events import Limit, Round
from dynatui.number_format import short
from dynatui.render import rounds
from dynatui.render.drawn import shape_written, told_shape
from dynatui.render.ink import Ink, Row, Rows, Span, bar, best, column, fit, frame, inside, width_of
from dynatui.render.mask import mask
from dynatui.render.scene import Scene
from dynatui.render.wrap import wrapped
from dynatui.state.tokens import repeated_length

_BAR = 8
_NUMBERS = 6
_CHANCE = 8
"""Cells of the column that sampled trees have besides."""
_WIDEST_NAME = 36
_ROOM_FOR_NOTE = 18
_LEVEL = 2
"""Cells of a level's guide line."""
_SHORTEST_NAME = 8
"""Cells that a name keeps however deep it stands."""
_LEAST_COPY = 4
"""Tokens of a path from which on a repetition is no accident."""
_ALONE: Mapping[Limit | None, str] = {
    "cost": "the target goes on alone: guesses would cost more time than they save",
    "context": "the target goes on alone: the context has no room for guesses",
    None: "the target goes on alone",
}
_SAMPLED = (
    "prob.: the draft's own probability. chance, path: how likely it is the target's token, given the random "
    "noise, the same for every method."
)
_DRAWN = (
    "x2: drawn twice, where paths agree. prob.: the draft's probability of the token at this temperature, by which it "
    "was drawn. kept, bar, colour: how likely the verifier keeps it, given this tree."
)
_UNTOLD = "x2: drawn twice, where paths agree. prob.: the draft's probability of the token, by which it was drawn."
_TIMES = 4
"""Cells of the column that says how often a node was drawn."""
_LIKELY, _POSSIBLE, _UNLIKELY = 0.5, 0.2, 0.05
"""Chances to be kept from which on a drawn node has another colour."""
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
    body = nodes(event, inner, room - 1, rounds.before(scene, event), marked=token.node if token else None)
    if drafted_nodes(event) == 0 and event.knobs is not None:
        why = _ALONE.get(event.limited_by, _ALONE[None])
        body += wrapped(((why, "dim"),), inner)[: max(0, room - 1 - len(body))]
    explained = [row for words in _explained(scene, event) for row in wrapped(((words, "dim"),), inner)]
    if len(body) + len(explained) < room - 1:
        body += [()] * (room - 1 - len(body) - len(explained)) + explained
    body += [()] * (room - 1 - len(body))
    body.append(_ending(scene, event, inner))
    return frame(title, body, (width, height))


def nodes(event: Round, width: int, height: int, text: Sequence[int] = (), *, marked: int | None = None) -> Rows:
    """The tree's rows, at most `height`; the last says what was left out. `text` is what the round continues."""
    paths = rounds.path_logprobs(event)
    total = len(event.tokens)
    shown = rounds.chosen(event, paths, height if total <= height else height - 1)
    copies = {} if rounds.is_drawn(event) else copies_among(event, paths, shown, text)
    rows = [
        _node(event, node, guide, paths[node], width, copies.get(node, 0), marked=node == marked)
        for node, guide in walk(event.parents, shown)
    ]
    if total > len(shown) and height > 0:
        rows.append(((f"+ {total - len(shown)} more nodes", "dim"),))
    return rows[: max(0, height)]


def copies_among(event: Round, paths: Sequence[float], shown: set[int], text: Sequence[int]) -> dict[int, int]:
    """The shown leaves at the end of an improbable path that the text holds already: tokens of the longest repetition.

    A path that repeats the text is often right although the draft gives it next to nothing; so `auto` keeps it.
    """
    inner = set(event.parents)
    found = {}
    for leaf in shown - inner:
        path = [node for node in rounds.path_to(event, leaf) if rounds.is_drafted(event, node)]
        if _LEAST_COPY <= len(path) <= len(text) and rounds.probability(paths[leaf]) < rounds.LEAST_SHOWN:
            length = repeated_length(text, [event.tokens[node] for node in path])
            if length >= len(path):
                found[leaf] = length
    return found


def walk(parents: Sequence[int], shown: set[int]) -> list[tuple[int, str]]:
    """The shown nodes depth first, each with the guide lines before it."""
    tee, corner, line, blank = "├─", "╰─", "│ ", "  "
    children: dict[int, list[int]] = {}
    for node in sorted(shown - {0}):
        children.setdefault(parents[node], []).append(node)
    order, stack = list[tuple[int, str]](), [(0, "", "")]
    while stack:
        node, before, own = stack.pop()
        order.append((node, before + own))
        below = before + {tee: line, corner: blank}.get(own, "")
        below_node = children.get(node, [])
        stack.extend((child, below, corner if child == below_node[-1] else tee) for child in reversed(below_node))
    return order


def _node(event: Round, node: int, guide: str, path: float, width: int, copy: int, *, marked: bool) -> Row:
    accepted = node in event.accepted
    drafted = rounds.is_drafted(event, node)
    mark = rounds.mark(event, node)
    ink: Ink = "caret" if marked else "accepted" if accepted else "plain" if drafted else "strong"
    name = f"{mark}{' ' * drafted}{rounds.piece_text(event.pieces[node])}"
    if width < 3 * _BAR:
        return fit(((_narrow(guide, width - _SHORTEST_NAME), "frame"), (name, ink)), width)
    length = max(_BAR, min(3 * _BAR, width // 4))
    if rounds.is_drawn(event):
        return _drawn_node(event, node, guide, (name, ink), path, width, length)
    apart = bool(event.draft_logprobs) and length >= _BAR + _CHANCE
    length -= _CHANCE * apart
    room = min(_WIDEST_NAME, width - length - _CHANCE * apart - 2 * _NUMBERS)
    guide = _narrow(guide, room - _SHORTEST_NAME)
    room -= len(guide)
    if not drafted:
        over_bar = "chance" if event.draft_logprobs and not apart else ""
        heading = f" prob.{'  chance' * apart} {over_bar:<{length}}{'path':>{_NUMBERS - 1}}"
        return _root((name, ink), room, heading)
    own = rounds.probability((event.draft_logprobs or event.logprobs)[node])
    chance = rounds.probability(event.logprobs[node])
    repeats = f"repeats {copy} tokens", f"repeats {copy}", f"rep. {copy}"
    drawn = best(length, *repeats).ljust(length) if copy else bar(chance, length)
    drawn_ink: Ink = "warn" if copy else "good" if accepted else "bar"
    return (
        (guide, "frame"),
        (column(name, room), ink),
        (f" {_percent(own)} ", ink),
        *(((f"   {_percent(chance)} ", ink),) if apart else ()),
        (drawn, drawn_ink),
        (f"  {_percent(rounds.probability(path))}", "dim"),
    )


def _drawn_node(event: Round, node: int, guide: str, named: Span, path: float, width: int, length: int) -> Row:
    """A node of a tree that was drawn: how often, by which probability, and how likely it is kept."""
    name, ink = named
    kept = rounds.kept_chance(event, node)
    several = _TIMES * any(count > 1 for count in event.drawn)
    room = min(_WIDEST_NAME, width - length - several - 2 * _NUMBERS)
    guide = _narrow(guide, room - _SHORTEST_NAME)
    room -= len(guide)
    if not rounds.is_drafted(event, node):
        told = "path" if kept is None else "kept"
        return _root(named, room, f"{'':{several}} prob. {'':<{length}}{told:>{_NUMBERS - 1}}")
    times, own = rounds.times_drawn(event, node) or 1, rounds.probability(event.logprobs[node])
    last = rounds.probability(path) if kept is None else kept
    colour: Ink = "bar" if kept is None else _kept_ink(kept)
    return (
        (guide, "frame"),
        (column(name, room), ink),
        (column(f" x{times}" if times > 1 else "", several), "strong"),
        (f" {_percent(own)} ", ink),
        (bar(own if kept is None else kept, length), colour),
        (f"  {_percent(last)}", "dim" if kept is None else colour),
    )


def _narrow(guide: str, room: int) -> str:
    """Guide lines without their first levels where these leave a name no room: a long chain goes straight down."""
    levels = max(1, room // _LEVEL)
    return guide if len(guide) <= _LEVEL * levels else "…" + guide[1 - _LEVEL * levels :]


def _kept_ink(chance: float) -> Ink:
    if chance >= _LIKELY:
        return "good"
    return "second" if chance >= _POSSIBLE else "bar" if chance >= _UNLIKELY else "dim"


def _root(named: Span, room: int, heading: str) -> Row:
    note = "  last token" if room >= _ROOM_FOR_NOTE else ""
    return (*fit((named, (note, "dim")), room), (heading, "dim"))


def _explained(scene: Scene, event: Round) -> list[str]:
    """What the columns mean; of a drawn tree, what was drawn, and what came of it, too."""
    if not rounds.is_drawn(event):
        return [_SAMPLED] if event.draft_logprobs else []
    found = event.verification
    told = [] if found is None or found.predicted_tokens is None else [_expected(event, found.predicted_tokens)]
    shape = [f"{words}." for words in told_shape(scene.state, event)[:1]]
    return [*shape, *told, _DRAWN if found and found.reach else _UNTOLD]


def _expected(event: Round, predicted: float) -> str:
    return f"Of this tree {short(predicted)} tokens were expected, {len(event.accepted) + 1} came."


def _percent(probability: float) -> str:
    return f"{100 * probability:3.0f}%"


def _progress(scene: Scene, event: Round) -> tuple[str, ...]:
    """What has become of the round so far, in wordings from the longest to the shortest."""
    drafted, accepted, stage = drafted_nodes(event), len(event.accepted), scene.held
    name = f"round {event.round}: "
    if not drafted and event.draft_forwards is not None:
        told = "no draft" if event.draft_forwards == 0 else "no guess kept"
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

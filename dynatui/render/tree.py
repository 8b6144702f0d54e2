"""The draft tree of a round: what was proposed, how probable it was, what the target accepted.

A tree may have more nodes than the panel has rows. Then the accepted path stays with the guesses that lost beside it,
and of the rest the most probable nodes: their ancestors are never less probable, so what is shown is always a tree.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

from msgspec import structs

from decoder.events import Round
from decoder.metrics import ROOT_IS_DRAFTED, drafted_nodes
from decoder.steering import Stage
from dynatui.clean import clean_line
from dynatui.render.ink import Ink, Row, Rows, bar, column, fit, frame, inside
from dynatui.render.scene import Scene
from dynatui.state import RunState
from dynatui.tokens import Token

_BAR = 8
_NUMBERS = 6
_WIDEST_NAME = 36
_ROOM_FOR_NOTE = 18


def tree(scene: Scene, width: int, height: int) -> Rows:
    """A round's tree in a frame: the inspected token's, the one that is held half-way, or the newest."""
    event = shown_round(scene)
    inner, room = inside((width, height))
    if event is None:
        hint: Row = (("each round grows a tree of guesses here", "dim"),)
        return frame((("Tree", "title"),), [hint], (width, height))
    title: Row = (("Tree", "title"), (f" ─ round {event.round}: {_progress(scene, event)}", "dim"))
    token = scene.inspected
    body = nodes(event, inner, room - 1, marked=token.node if token else None)
    body += [()] * (room - 1 - len(body))
    body.append(_ending(scene, event))
    return frame(title, body, (width, height))


def shown_round(scene: Scene) -> Round | None:
    """The round that the tree and the mask are drawn from."""
    token, stage = scene.inspected, held(scene)
    if token is not None:
        return round_of(scene.state, token)
    if stage is None:
        return scene.state.newest
    return structs.replace(stage.event, pieces=[clean_line(piece) for piece in stage.event.pieces])


def round_of(state: RunState, token: Token) -> Round | None:
    """The round that a token came out of; a recording may number its rounds as it likes."""
    place = bisect_left(state.past, token.round, key=lambda event: event.round)
    if place < len(state.past) and state.past[place].round == token.round:
        return state.past[place]
    return next((event for event in state.past if event.round == token.round), None)


def held(scene: Scene) -> Stage | None:
    """The stage that the engine is held at in the middle of a round, unless a token is inspected."""
    return scene.stage if scene.inspected is None else None


def nodes(event: Round, width: int, height: int, *, marked: int | None = None) -> Rows:
    """The tree's rows, at most `height`; the last says what was left out."""
    paths = path_logprobs(event)
    total = len(event.tokens)
    shown = chosen(event, paths, height if total <= height else height - 1)
    rows = [
        _node(event, node, guide, paths[node], width, marked=node == marked)
        for node, guide in walk(event.parents, shown)
    ]
    if total > len(shown) and height > 0:
        rows.append(((f"+ {total - len(shown)} more nodes", "dim"),))
    return rows[: max(0, height)]


def path_logprobs(event: Round) -> list[float]:
    """Log-probability of the path to each node, as the draft saw it."""
    found = list(event.logprobs)
    for node in range(1, len(found)):
        found[node] += found[event.parents[node]]
    return found


def chosen(event: Round, paths: Sequence[float], room: int) -> set[int]:
    """Which nodes are shown: the root and the accepted path, what else was guessed along it, then the most probable."""
    first = {0, *event.accepted}
    rest = (node for node in range(len(paths)) if node not in first)
    ranked = sorted(rest, key=lambda node: (event.parents[node] not in first, -paths[node], node))
    return first | set(ranked[: max(0, room - len(first))])


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
        kids = children.get(node, [])
        stack.extend((kid, below, corner if kid == kids[-1] else tee) for kid in reversed(kids))
    return order


def piece_text(piece: str) -> str:
    """A token's text for a narrow column: blanks made visible, a dash before what continues a word."""
    visible = piece.replace("\n", "⏎").replace("\u240a", "⏎")
    if not visible.strip(" "):
        return "␣" * len(visible) or "∅"
    return f"-{visible}" if visible[0].isalnum() else visible.strip(" ")


def _node(event: Round, node: int, guide: str, path: float, width: int, *, marked: bool) -> Row:
    accepted = node in event.accepted
    drafted = is_drafted(event, node)
    mark = ("● " if accepted else "○ ") if drafted else ""
    ink: Ink = "caret" if marked else "accepted" if accepted else "plain" if drafted else "strong"
    name = f"{mark}{piece_text(event.pieces[node])}"
    if width < 3 * _BAR:
        return fit(((guide, "frame"), (name, ink)), width)
    length = max(_BAR, min(3 * _BAR, width // 4))
    room = min(_WIDEST_NAME, width - length - 2 * _NUMBERS) - len(guide)
    if not drafted:
        heading = f" prob. {'path':>{length + _NUMBERS - 1}}"
        note = "  last token" if room >= _ROOM_FOR_NOTE else ""
        return (*fit(((name, ink), (note, "dim")), room), (heading, "dim"))
    own = probability(event.logprobs[node])
    return (
        (guide, "frame"),
        (column(name, room), ink),
        (f" {_percent(own)} ", ink),
        (bar(own, length), "good" if accepted else "bar"),
        (f"  {_percent(probability(path))}", "dim"),
    )


def is_drafted(event: Round, node: int) -> bool:
    """Whether the node is a guess: the root is the last committed token, unless the method drafts that too."""
    return node > 0 or event.method in ROOT_IS_DRAFTED


def probability(logprob: float) -> float:
    """The probability, whatever a recording claims."""
    return math.exp(min(0.0, logprob))


def _percent(probability: float) -> str:
    return f"{100 * probability:3.0f}%"


def _progress(scene: Scene, event: Round) -> str:
    """What has become of the round so far."""
    drafted, stage = f"{drafted_nodes(event)} drafted", held(scene)
    if stage is not None and stage.name == "drafted":
        return f"{drafted}, not yet verified"
    if stage is not None and stage.name == "verified":
        return f"{drafted}, {len(event.accepted)} pass, not yet committed"
    return f"{drafted}, {len(event.accepted)} accepted"


def _ending(scene: Scene, event: Round) -> Row:
    if event.draft_forwards is None:
        return (("this method does not show its draft", "dim"),)
    stage = held(scene)
    if stage is not None and stage.name == "drafted":
        return (("○ a guess", "plain"), ("  the target has not looked at it yet", "dim"))
    legend: Row = (("● accepted", "accepted"), ("  ○ rejected", "plain"))
    bonus = bonus_of(scene, event)
    return legend if bonus is None else (*legend, ("  + target: ", "dim"), (piece_text(bonus.text), "bonus"))


def bonus_of(scene: Scene, event: Round) -> Token | None:
    """The token that the target itself added to a round, if it is text already."""
    stage = held(scene)
    if stage is not None and stage.name != "committed":
        return None
    tokens = scene.state.tokens
    place = len(tokens) - 1 if scene.inspected is None else scene.cursor or 0
    while place + 1 < len(tokens) and tokens[place + 1].round == event.round:
        place += 1
    last = tokens[place] if tokens else None
    return last if last and last.origin == "bonus" and last.round == event.round else None

"""The draft tree of a round: what was proposed, how probable it was, what the target accepted.

A tree may have more nodes than the panel has rows. Then the accepted path stays, and of the rest the most probable
nodes: their ancestors are never less probable, so what is shown is always a tree.
"""

import math
from collections.abc import Sequence

from decoder.events import Round
from decoder.metrics import ROOT_IS_DRAFTED, drafted_nodes
from dynatui.render.ink import Ink, Row, Rows, bar, column, fit, frame, inside
from dynatui.render.scene import Scene

_BAR = 8
_NUMBERS = 6
_WIDEST_NAME = 36
_ROOM_FOR_NOTE = 18


def tree(scene: Scene, width: int, height: int) -> Rows:
    """The newest round's tree in a frame."""
    event = scene.state.newest
    inner, room = inside((width, height))
    if event is None:
        hint: Row = (("each round grows a tree of guesses here", "dim"),)
        return frame((("Tree", "title"),), [hint], (width, height))
    title: Row = (
        ("Tree", "title"),
        (f" ─ round {event.round}: {drafted_nodes(event)} drafted, {len(event.accepted)} accepted", "dim"),
    )
    body = nodes(event, inner, room - 1)
    body += [()] * (room - 1 - len(body))
    body.append(_ending(event, scene.state.bonus))
    return frame(title, body, (width, height))


def nodes(event: Round, width: int, height: int) -> Rows:
    """The tree's rows, at most `height`; the last says what was left out."""
    paths = path_logprobs(event)
    total = len(event.tokens)
    shown = chosen(event, paths, height if total <= height else height - 1)
    rows = [_node(event, node, guide, paths[node], width) for node, guide in walk(event.parents, shown)]
    if total > len(shown) and height > 0:
        rows.append(((f"+ {total - len(shown)} less likely nodes", "dim"),))
    return rows[: max(0, height)]


def path_logprobs(event: Round) -> list[float]:
    """Log-probability of the path to each node, as the draft saw it."""
    found = list(event.logprobs)
    for node in range(1, len(found)):
        found[node] += found[event.parents[node]]
    return found


def chosen(event: Round, paths: Sequence[float], room: int) -> set[int]:
    """Which nodes are shown: the root, the accepted path, then by falling probability of the path."""
    first = {0, *event.accepted}
    rest = sorted((node for node in range(len(paths)) if node not in first), key=lambda node: (-paths[node], node))
    return first | set(rest[: max(0, room - len(first))])


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
    visible = piece.replace("\u240a", "⏎")
    if not visible.strip(" "):
        return "␣" * len(visible) or "∅"
    return f"-{visible}" if visible[0].isalnum() else visible.strip(" ")


def _node(event: Round, node: int, guide: str, path: float, width: int) -> Row:
    accepted = node in event.accepted
    drafted = node > 0 or event.method in ROOT_IS_DRAFTED
    mark = ("● " if accepted else "○ ") if drafted else ""
    ink: Ink = "accepted" if accepted else "plain" if drafted else "strong"
    name = f"{mark}{piece_text(event.pieces[node])}"
    if width < 3 * _BAR:
        return fit(((guide, "frame"), (name, ink)), width)
    length = max(_BAR, min(3 * _BAR, width // 4))
    room = min(_WIDEST_NAME, width - length - 2 * _NUMBERS) - len(guide)
    if not drafted:
        heading = f" prob. {'path':>{length + _NUMBERS - 1}}"
        note = "  last token" if room >= _ROOM_FOR_NOTE else ""
        return (*fit(((name, ink), (note, "dim")), room), (heading, "dim"))
    own = _probability(event.logprobs[node])
    return (
        (guide, "frame"),
        (column(name, room), ink),
        (f" {_percent(own)} ", ink),
        (bar(own, length), "good" if accepted else "bar"),
        (f"  {_percent(_probability(path))}", "dim"),
    )


def _probability(logprob: float) -> float:
    return math.exp(min(0.0, logprob))


def _percent(probability: float) -> str:
    return f"{100 * probability:3.0f}%"


def _ending(event: Round, bonus: str) -> Row:
    if event.draft_forwards is None:
        return (("this method does not show its draft", "dim"),)
    legend: Row = (("● accepted", "accepted"), ("  ○ rejected", "plain"))
    return (*legend, ("  + target: ", "dim"), (piece_text(bonus), "bonus")) if bonus else legend

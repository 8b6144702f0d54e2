"""Which round a picture is of, which of its nodes there is room for, what it continues, and how a node is called.

A tree may have more nodes than a panel has rows. Then the accepted path stays with the rejected guesses beside it,
and of the rest the most probable nodes: their ancestors are never less probable, so what is shown is always a tree.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

from msgspec import structs

from decoder.events import Draws, Round
from decoder.methods import root_is_drafted
from dynatui.clean import clean_line
from dynatui.render.ink import share
from dynatui.render.scene import Scene
from dynatui.state.origins import with_origins
from dynatui.state.run_state import RunState
from dynatui.state.tokens import FARTHEST, Token

LEAST_SHOWN = 0.005
"""Least probability that does not round to 0 %."""


def shown_round(scene: Scene) -> Round | None:
    """The round that the tree and the mask are drawn from."""
    token, stage = scene.inspected, scene.held
    if token is not None:
        return round_of(scene.known, token)
    event = stage.event if stage else scene.state.lane.newest
    if event is not None and stage:
        event = structs.replace(event, pieces=[clean_line(piece) for piece in event.pieces])
    return event and with_origins(scene.state.run, event)


def earlier(scene: Scene, most: int) -> list[Round]:
    """The rounds before the one that is shown, where there is one; the newest first."""
    token, stage = scene.inspected, scene.held
    if token is not None:
        state, end = scene.known, _place_of(scene.known, token)
    else:
        state, is_past = scene.state, stage is None or stage.name == "committed"
        end = len(state.lane.past) - is_past
    past = state.lane.past[max(0, end - most) : end]
    return [with_origins(state.run, event) for event in reversed(past)]


def round_number(state: RunState, token: Token) -> int:
    """Rounds of the watched method until a token was there, its own included."""
    return _place_of(state, token) + 1


def round_of(state: RunState, token: Token) -> Round | None:
    """The round that a token came out of."""
    place = _place_of(state, token)
    return with_origins(state.run, state.lane.past[place]) if place >= 0 else None


def _place_of(state: RunState, token: Token) -> int:
    """The place of a token's round, -1 for none; a recording may number its rounds as it likes."""
    past = state.lane.past
    place = bisect_left(past, token.round, key=lambda event: event.round)
    if place == len(past) or past[place].round != token.round:
        place = next((index for index, event in enumerate(past) if event.round == token.round), -1)
    return place


def bonus_of(scene: Scene, event: Round) -> Token | None:
    """The token that the target itself added to a round, if it is text already."""
    stage = scene.held
    if stage is not None and stage.name != "committed":
        return None
    tokens = scene.state.lane.tokens if scene.inspected is None else scene.known.lane.tokens
    place = len(tokens) - 1 if scene.inspected is None else scene.cursor or 0
    while place + 1 < len(tokens) and tokens[place + 1].round == event.round:
        place += 1
    last = tokens[place] if tokens else None
    return last if last and last.origin == "bonus" and last.round == event.round else None


def path_logprobs(event: Round) -> list[float]:
    """Log-probability of the path to each node, as the draft saw it; never above its parent's."""
    found = [min(0.0, logprob) for logprob in event.logprobs]
    for node in range(1, len(found)):
        found[node] += found[event.parents[node]]
    return found


def ranked(event: Round, paths: Sequence[float]) -> list[int]:
    """The nodes in the order in which they are shown where there is not room for all: each after its parent.

    The root and the accepted path come first, then what else was guessed along it, then the most probable.
    """
    path = dict.fromkeys((0, *event.accepted))
    rest = (node for node in range(len(paths)) if node not in path)
    return [*path, *sorted(rest, key=lambda node: (event.parents[node] not in path, -paths[node], node))]


def before(scene: Scene, event: Round) -> Sequence[int]:
    """The newest tokens of the text that a round continues, those of the prompt included."""
    state = scene.state
    tally, prompt = state.race.tallies.get(event.method), state.run.prompt_tokens if state.run else []
    written = tally.tokens[max(0, event.position - FARTHEST) : event.position] if tally else ()
    return (*prompt[-FARTHEST:], *written)


def path_to(event: Round, node: int) -> list[int]:
    """The nodes from the root to a node, both included."""
    found = list[int]()
    while node >= 0:
        found.append(node)
        node = event.parents[node]
    return found[::-1]


def is_drawn(event: Round) -> bool:
    """Whether the tree was drawn from the draft, as `delayed` draws it, and not chosen by its probabilities."""
    return event.shape is not None or bool(event.drawn)


def times_drawn(event: Round, node: int) -> int | None:
    """How often a node of a drawn tree was drawn; None where a recording does not tell."""
    return event.drawn[node] if node < len(event.drawn) else None


def kept_chance(event: Round, node: int) -> float | None:
    """The chance that the verifier accepts a node of a drawn tree, given the tree; None where that is not told."""
    reach = event.verification.reach if event.verification else []
    return share(reach[node], 1.0) if node < len(reach) else None


def draws_after(event: Round, depth: int) -> Draws | None:
    """The draws between which the verifier chose at a depth of the accepted path, from 0; None where there are none."""
    path = event.verification.path if event.verification else []
    return path[depth] if depth < len(path) else None


def is_drafted(event: Round, node: int) -> bool:
    """Whether the node is a guess: the root is the last committed token, unless the method drafts that too."""
    return node > 0 or root_is_drafted(event.method)


def looked_up(event: Round, node: int) -> bool:
    """Whether the node is a guess of the text's own past."""
    return bool(event.origins) and event.origins[node] == "lookup"


def mark(event: Round, node: int) -> str:
    """What stands before a guess: whether it was accepted, and whether it was looked up; nothing before others."""
    if not is_drafted(event, node):
        return ""
    accepted, rejected = ("◆", "◇") if looked_up(event, node) else ("●", "○")
    return accepted if node in event.accepted else rejected


def probability(logprob: float) -> float:
    """The probability, whatever a recording claims."""
    return math.exp(min(0.0, logprob))


def piece_text(piece: str) -> str:
    """A token's text for a narrow column: blanks made visible, a dash before what continues a word."""
    visible = piece.replace("\n", "⏎").replace("\u240a", "⏎")
    if not visible.strip(" "):
        return "␣" * len(visible) or "∅"
    return f"-{visible}" if visible[0].isalnum() else visible.strip(" ")

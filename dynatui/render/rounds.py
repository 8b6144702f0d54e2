"""The shown round, the text before it, marks of its nodes, and the order in which nodes get space in a panel.

This order follows path probabilities, which never increase from parent to child, so the shown nodes form a tree.
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
from dynatui.state.run_state import RunState
from dynatui.state.tokens import FARTHEST, Token

LEAST_SHOWN = 0.005
"""Probabilities below this value are displayed as <1%."""


def shown_round(scene: Scene) -> Round | None:
    token, stage = scene.inspected, scene.held_stage
    if token is not None:
        return round_of(scene.newest_state, token)
    event = stage.event if stage else scene.state.lane.newest
    if event is not None and stage:
        event = structs.replace(event, pieces=[clean_line(piece) for piece in event.pieces])
    return event and scene.state.with_origins(event)


def earlier(scene: Scene, most: int) -> list[Round]:
    """At most `most` rounds before the shown round, the newest first."""
    token, stage = scene.inspected, scene.held_stage
    if token is not None:
        state, end = scene.newest_state, round_number(scene.newest_state, token) - 1
    else:
        state, is_past = scene.state, stage is None or stage.name == "committed"
        end = len(state.lane.past) - is_past
    past = state.lane.past[max(0, end - most) : end]
    return [state.with_origins(event) for event in reversed(past)]


def round_of(state: RunState, token: Token) -> Round | None:
    number = round_number(state, token)
    return state.with_origins(state.lane.past[number - 1]) if number else None


def round_number(state: RunState, token: Token) -> int:
    """Number of the token's round, from 1; 0 if none. Recorded rounds may be unordered; bisection can then fail."""
    past = state.lane.past
    place = bisect_left(past, token.round, key=lambda event: event.round)
    if place == len(past) or past[place].round != token.round:
        place = next((index for index, event in enumerate(past) if event.round == token.round), -1)
    return place + 1


def bonus_of(scene: Scene, event: Round) -> Token | None:
    """The target's token after the accepted path; None until it is committed."""
    stage = scene.held_stage
    if stage is not None and stage.name != "committed":
        return None
    tokens = scene.state.lane.tokens if scene.inspected is None else scene.newest_state.lane.tokens
    place = len(tokens) - 1 if scene.inspected is None else scene.cursor or 0
    while place + 1 < len(tokens) and tokens[place + 1].round == event.round:
        place += 1
    last = tokens[place] if tokens else None
    return last if last and last.origin == "bonus" and last.round == event.round else None


def path_logprobs(event: Round) -> list[float]:
    """Log-probability of the path to each node; never above that of the path to the parent."""
    logprobs = [min(0.0, logprob) for logprob in event.logprobs]
    for node in range(1, len(logprobs)):
        logprobs[node] += logprobs[event.parents[node]]
    return logprobs


def ranked(event: Round, paths: Sequence[float]) -> list[int]:
    """Root and accepted path, other children of these nodes, then the rest, by path probability; parents come first."""
    path = dict.fromkeys((0, *event.accepted))
    rest = (node for node in range(len(paths)) if node not in path)
    return [*path, *sorted(rest, key=lambda node: (event.parents[node] not in path, -paths[node], node))]


def before(scene: Scene, event: Round) -> Sequence[int]:
    """The newest tokens before the round, including tokens of the prompt."""
    state = scene.state
    tally, prompt = state.race.tallies.get(event.method), state.run.prompt_tokens if state.run else []
    written = tally.tokens[max(0, event.position - FARTHEST) : event.position] if tally else ()
    return (*prompt[-FARTHEST:], *written)


def path_to(event: Round, node: int) -> list[int]:
    """The nodes on the path from the root to the node, both included."""
    path = list[int]()
    while node >= 0:
        path.append(node)
        node = event.parents[node]
    return path[::-1]


def is_drawn(event: Round) -> bool:
    """Whether the tree was sampled, as in method `delayed`; other trees are grown by probability."""
    return event.shape is not None or bool(event.drawn)


def kept_chance(event: Round, node: int) -> float | None:
    """Probability that the verifier accepts a node of a sampled tree, given the tree; None if it was not recorded."""
    reach = event.verification.reach if event.verification else []
    return share(reach[node], 1.0) if node < len(reach) else None


def draws_after(event: Round, depth: int) -> Draws | None:
    """Statistics of the tokens sampled after the accepted node at `depth` (root: 0); None if unknown."""
    path = event.verification.path if event.verification else []
    return path[depth] if depth < len(path) else None


def is_drafted(event: Round, node: int) -> bool:
    """Whether the node was drafted: true for every node below the root; for the root, true if the method drafts it."""
    return node > 0 or root_is_drafted(event.method)


def looked_up(event: Round, node: int) -> bool:
    return bool(event.origins) and event.origins[node] == "lookup"


def mark(event: Round, node: int) -> str:
    """Sign of an accepted or rejected, drafted or looked-up node; empty for a node that was not drafted."""
    if not is_drafted(event, node):
        return ""
    accepted, rejected = ("◆", "◇") if looked_up(event, node) else ("●", "○")
    return accepted if node in event.accepted else rejected


def probability(logprob: float) -> float:
    """exp(`logprob`), at most 1, since recordings may contain any numbers."""
    return math.exp(min(0.0, logprob))


def chance_percent(chance: float) -> str:
    """The probability as a percentage in at most four cells."""
    clipped = share(chance, 1.0)
    return "<1%" if clipped < LEAST_SHOWN else f"{100 * clipped:.0f}%"


def piece_text(piece: str) -> str:
    """A token's text for a narrow column, with visible blanks; a dash shows that the token continues a word."""
    visible = piece.replace("\n", "⏎").replace("\u240a", "⏎")
    if not visible.strip(" "):
        return "␣" * len(visible) or "∅"
    return f"-{visible}" if visible[0].isalnum() else visible.strip(" ")

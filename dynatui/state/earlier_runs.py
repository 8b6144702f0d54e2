"""The user's turns of knobs in earlier runs of a session and their outcomes; the only part of a run that is kept."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from decoder.events import Round
from dynatui.state.lane import Change, LaneState

_MOST_RUNS = 20


@dataclass(frozen=True)
class Side:
    rounds: int
    tokens_per_round: float


@dataclass(frozen=True)
class Outcome:
    before: Side | None
    after: Side | None


@dataclass(frozen=True)
class EarlierRun:
    number: int
    prompt: str
    turns: Mapping[str, tuple[tuple[Change, Outcome], ...]]


def outcomes(turns: Sequence[Change], lane: LaneState) -> Iterator[tuple[Change, Outcome]]:
    """Rounds after the next turn do not count."""
    for turn, following in zip_longest(turns, turns[1:]):
        before = lane.past[max(0, turn.first - lane.window) : turn.first]
        end = turn.round + (len(before) or lane.window)
        after = lane.past[turn.round : min(end, following.first) if following else end]
        yield turn, Outcome(_side(before), _side(after))


def _side(rounds: Sequence[Round]) -> Side | None:
    if not rounds:
        return None
    return Side(len(rounds), math.fsum(len(event.committed) for event in rounds) / len(rounds))


def with_run(
    earlier: tuple[EarlierRun, ...], number: int, prompt: str, lanes: Mapping[str, LaneState]
) -> tuple[EarlierRun, ...]:
    """The earlier runs and one more; a run without turns is left out."""
    turns = {method: tuple(outcomes(lane.turns, lane)) for method, lane in lanes.items() if lane.turns}
    return (*earlier, EarlierRun(number, prompt, turns))[-_MOST_RUNS:] if turns else earlier

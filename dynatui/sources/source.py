"""What the sources of records share: speeds, sources without an engine, and the conditions at which decoding pauses."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from decoder.analysis.metrics import compared_until, drafted_nodes, first_difference
from decoder.events import Event, Round
from decoder.methods.adaptive import AdaptiveTree
from decoder.tree_rules import used_depth
from dynatui.number_format import nth
from dynatui.state.lane import LaneState, is_sane
from dynatui.state.run_state import Record, RunState

Break: TypeAlias = Literal["rejected", "full", "bound", "under", "difference"]

BREAKS: tuple[Break, ...] = get_args(Break)
LABELS: Mapping[Break, str] = {
    "rejected": "nothing accepted",
    "full": "tree full",
    "bound": "D0 at a bound",
    "under": "depth acceptance under x in the last rounds",
    "difference": "first difference from ar",
}
EXPLANATIONS: Mapping[Break, str] = {
    "rejected": "a round drafted tokens, and the target accepted none of them",
    "full": "the tree reached N_max nodes, so drafting stopped; method auto has no N_max",
    "bound": "the base depth in use reaches 1 or D_max - 1, the bounds of the history rule",
    "under": "the mean depth acceptance of the last rounds with drafts (one window) falls below x",
    "difference": "the watched text differs from the text of ar for the first time",
}
LIMIT = 0.3
"""Default threshold of "under", the x in its label."""


@dataclass(frozen=True)
class Conditions:
    on: frozenset[Break] = frozenset()
    limit: float = LIMIT
    """Threshold of "under", a depth acceptance from 0 to 1."""

    def toggled(self, name: Break) -> "Conditions":
        return replace(self, on=self.on ^ {name})

    def moved(self, distance: float) -> "Conditions":
        return replace(self, limit=min(1.0, max(0.0, round(self.limit + distance, 2))))

    def label(self, name: Break) -> str:
        return LABELS[name].replace("x", f"{self.limit:.2f}") if name == "under" else LABELS[name]


def met(conditions: Conditions, before: RunState, after: RunState, event: Event) -> str | None:
    """The reason to pause after an event, from the states before and after it; None if there is none."""
    if not conditions.on or not isinstance(event, Round):
        return None
    reasons = [_reason(name, conditions, before, after, event) for name in BREAKS if name in conditions.on]
    joined = "; ".join(reason for reason in reasons if reason)
    method_words = "" if event.method == after.watched else f" of {event.method}"
    return f"{joined}, round {nth(event.round)}{method_words}" if joined else None


def _reason(name: Break, conditions: Conditions, before: RunState, after: RunState, event: Round) -> str | None:
    if name == "difference":
        index = _difference(after) if event.method in (after.watched, "ar") else None
        is_first = index is not None and _difference(before) is None
        return f"{after.watched} differs from ar at token {index}" if is_first else None
    if event.method != after.watched:
        return None
    drafted = drafted_nodes(event)
    match name:
        case "rejected":
            return f"all {drafted} drafted tokens rejected" if drafted and not event.accepted else None
        case "full":
            n_max = int(after.lane.settings.get("n_max", 0))
            return f"the tree is full with {drafted} nodes" if n_max and drafted >= n_max else None
        case "bound":
            was, now = _bound(before.lane), _bound(after.lane)
            return f"D0 reached its bound {now}" if before.rounds and now is not None and now != was else None
        case "under":
            mean, earlier = _mean_share(after.lane), _mean_share(before.lane)
            fell = mean is not None and mean < conditions.limit and (earlier is None or earlier >= conditions.limit)
            words = f"the mean of {_window(after.lane)} rounds, is under {conditions.limit:g}"
            return f"depth acceptance {mean:.2f}, {words}" if fell else None


def _difference(state: RunState) -> int | None:
    """Index of the first token that differs between the watched text and the text of `ar` but should be equal."""
    run, tallies = state.run, state.race.tallies
    if run is None or "ar" not in tallies:
        return None
    until = compared_until(run, state.watched, sampled=state.race.sampled)
    index = first_difference(tallies[state.watched].tokens, tallies["ar"].tokens)
    return index if index is not None and until is not None and index < until else None


def _bound(lane: LaneState) -> int | None:
    """The base depth in use in the newest round, if it is a bound of the history rule."""
    knobs, d_max = lane.newest.knobs if lane.newest else None, lane.settings.get("d_max")
    if knobs is None or d_max is None or not is_sane(knobs.d0):
        return None
    depth = used_depth(knobs.d0)
    return depth if depth in (1, int(d_max) - 1) else None


def _window(lane: LaneState) -> int:
    """The history rule's window in rounds; the default for methods without the rule."""
    return lane.window if lane.history is not None else AdaptiveTree.window


def _mean_share(lane: LaneState) -> float | None:
    """Mean depth acceptance over the window; None until the window is full."""
    window = _window(lane)
    return math.fsum(lane.shares[-window:]) / window if len(lane.shares) >= window else None


SHOWN_PER_SECOND = 15.0
"""Tokens per second at which a user can read the text and follow the history rule."""
REST_S = 4.0
SLOWEST, FASTEST = 0.001, 1000.0
_SLOWEST_TEXT = 1 / 64


class Reader:
    """A source of records without an engine and without a thread."""

    controls = None
    recorded = None
    lost = None

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.paused = False

    def start(self) -> None: ...

    def set_paused(self, *, paused: bool) -> None:
        self.paused = paused

    def stop(self) -> None: ...

    def close(self, timeout_s: float) -> bool:
        del timeout_s
        return True


def bounded_speed(speed: float) -> float:
    return min(FASTEST, max(SLOWEST, speed))


def readable_speed(tokens_per_second: float) -> float:
    """The highest power of two from 1/64 to 1 at which the user can read the text, or else 1/64."""
    speed = 1.0
    while speed > _SLOWEST_TEXT and tokens_per_second * speed > SHOWN_PER_SECOND * 4 / 3:
        speed /= 2
    return speed

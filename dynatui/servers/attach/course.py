"""Sums of a watched server's readings since its last restart; their size is bounded for sessions of any length."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise, zip_longest
from typing import Any, Self

from dynatui.servers.attach.events import LARGEST, MOST_COUNTED, Drafting, Event, Load, Reading
from dynatui.servers.profile_file import StepPoint

_MOST_PIECES = 16
_PIECE = 100
"""Minimum number of rounds in each of `Course.pieces` at first; doubled each time that pieces are merged."""
_STEADY = 0.25
"""An interval in which the number of running requests changes by more than this share is assigned to no load."""


@dataclass(frozen=True)
class Sums:
    """Figures that are added field by field; each sum is limited to the largest value that an event can hold."""

    def plus(self, other: Self) -> Self:
        """The sums. If a field is None on one side, the other side's value is used; missing positions count as 0."""
        return type(self)(*(_added(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)))


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, tuple):
        return tuple(whole(first + second) for first, second in zip_longest(one, other, fillvalue=0))
    if one is None or other is None:
        return other if one is None else one
    return min(LARGEST, one + other) if isinstance(one, float) else whole(one + other)


def whole(number: float) -> int:
    return min(round(number), MOST_COUNTED)


@dataclass(frozen=True)
class Span(Sums):
    """Sums over intervals."""

    generated: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_at: tuple[int, ...] = ()
    drafted_at: tuple[int, ...] = ()
    """`accepted_at` and `drafted_at`: counts by position; empty if the server does not report them."""
    running: float = 0.0
    """Number of running requests, summed over rounds."""
    cached: float = 0.0
    """Share of the KV cache per running request, summed over rounds."""
    timed: int = 0
    """Number of intervals with a known `StepPoint`; the next three fields are sums over these intervals."""
    streams: float = 0.0
    """Number of running requests."""
    log_s: float = 0.0
    squared: float = 0.0
    """`log_s` and `squared`: sums of the logarithm of the step time, and of the square of this logarithm."""

    @property
    def accepted_per_round(self) -> float:
        return _share(sum(self.accepted_at) or self.accepted, self.rounds)

    @property
    def length(self) -> float:
        """L-bar, tokens per round."""
        return 1 + self.accepted_per_round

    @property
    def drafted_per_round(self) -> float:
        return _share(self.drafted, self.rounds)

    @property
    def rates(self) -> tuple[float, ...]:
        """Acceptance by position: accepted / drafted tokens, or accepted tokens / rounds if `drafted_at` is unknown."""
        drafted = self.drafted_at or (self.rounds,) * len(self.accepted_at)
        return tuple(map(_share, self.accepted_at, drafted))

    def surely_drafted(self, position: int) -> float:
        """Lower bound of the rounds that draft a token at `position` (from 0), if no later position has more rounds."""
        if position < len(self.drafted_at):
            return self.drafted_at[position]
        places = len(self.accepted_at)
        if position == 0 or not self.drafted:
            return self.rounds
        others = self.drafted - position * self.rounds
        return min(self.rounds, max(0.0, others / (places - position))) if position < places else 0.0

    @property
    def mean_running(self) -> float:
        return _share(self.running, self.rounds)

    @property
    def timed_running(self) -> float:
        """Mean number of running requests over the intervals with a known step time, else over all rounds."""
        return self.streams / self.timed if self.timed else self.mean_running

    @property
    def mean_cached(self) -> float:
        return _share(self.cached, self.rounds)

    @property
    def step_s(self) -> float | None:
        """Geometric mean of the step times."""
        return math.exp(self.log_s / self.timed) if self.timed else None


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


@dataclass(frozen=True)
class Course:
    life: Span = field(default_factory=Span)
    """Sums over all readings since the server's last start."""
    before: Span | None = None
    """`life` up to the last restart that followed at least one round; None if there was none."""
    pieces: tuple[Span, ...] = ()
    """Successive parts of `life`, all but the last with about the same number of rounds."""
    piece: int = _PIECE
    by_load: Mapping[int, Span] = field(default_factory=dict)
    """`load_class` -> part of `life` at these loads."""
    k: int | None = None
    """Largest number of tokens that a round drafts; None if unknown."""
    load: Load | None = None


def followed(course: Course, reading: Reading) -> Course:
    if reading.restarted:
        course = Course(before=course.life if course.life.rounds else course.before, k=course.k)
    running = _steady(course.load, reading.load)
    span = _span(reading, load_point(course.load, reading))
    by_load = course.by_load
    if running is not None and (span.rounds or span.generated):
        place = load_class(running)
        by_load = {**by_load, place: by_load.get(place, Span()).plus(span)}
    pieces, piece = _cut(course.pieces, span, course.piece)
    life, k = course.life.plus(span), _most_drafted(reading) or course.k
    return replace(course, life=life, pieces=pieces, piece=piece, by_load=by_load, k=k, load=reading.load)


def load_class(running: float) -> int:
    """Class of similar loads; there are two classes per doubling of the running requests."""
    return round(2 * math.log2(max(1.0, running)))


def load_point(before: Load | None, reading: Reading) -> StepPoint | None:
    """Load and step time of an interval; None if the load changed within it, or if the step time is unknown.

    The step time is, if the server reports it, the time between outputs of a request; else the latency per token times
    the tokens per round; else the running requests divided by rounds per second (without drafts: by tokens per second).
    """
    interval, running = reading.interval, _steady(before, reading.load)
    rounds, drafted = interval.drafts or 0, interval.drafted or 0
    if running is None or not interval.seconds or (rounds and not drafted):
        return None
    length = interval.tokens_per_round if rounds else 1.0
    step_s = interval.step_s
    if step_s is None and interval.token_latency_s is not None and length is not None:
        step_s = interval.token_latency_s * length
    elif step_s is None:
        step_s = _share(running * interval.seconds, rounds or interval.generated or 0)
    if not step_s:
        return None
    return StepPoint(running=running, k=_share(drafted, rounds), step_s=step_s, steps=interval.seconds / step_s)


def load_points(events: Iterable[Event]) -> Iterator[StepPoint]:
    """The known load points of a recording of a server, to which its costs are fitted."""
    readings = (event for event in events if isinstance(event, Reading))
    for before, reading in pairwise(readings):
        if not reading.restarted and (point := load_point(before.load, reading)) is not None:
            yield point


def _steady(before: Load | None, after: Load | None) -> float | None:
    """Mean number of running requests in an interval; None if it is unknown, 0 or not steady."""
    if before is None or after is None or not before.running or not after.running:
        return None
    low, high = sorted((before.running, after.running))
    return (low + high) / 2 if high - low <= max(1.0, _STEADY * high) else None


def _span(reading: Reading, point: StepPoint | None) -> Span:
    """The reading as a span; its rounds are omitted if their number of accepted tokens is unknown."""
    interval, load = reading.interval, reading.load or Load()
    rounds, accepted, drafted = interval.drafts or 0, interval.accepted, interval.drafted
    if accepted is None and interval.tokens_per_round is not None:
        accepted = round(rounds * max(0.0, interval.tokens_per_round - 1))
    if accepted is None and not interval.accepted_by_position:
        rounds = 0
    running, log_s = load.running or 0.0, math.log(point.step_s) if point else 0.0
    return Span(
        generated=interval.generated or 0,
        rounds=rounds,
        drafted=rounds * (_most_drafted(reading) or 0) if drafted is None else drafted,
        accepted=accepted or 0,
        accepted_at=interval.accepted_by_position,
        drafted_at=interval.drafted_by_position,
        running=rounds * running,
        cached=_share(rounds * (load.cache_usage or 0.0), running),
        timed=1 if point else 0,
        streams=point.running if point else 0.0,
        log_s=log_s,
        squared=log_s**2,
    )


def _cut(pieces: tuple[Span, ...], span: Span, least: int) -> tuple[tuple[Span, ...], int]:
    if not span.rounds:
        return pieces, least
    if pieces and pieces[-1].rounds < least:
        return (*pieces[:-1], pieces[-1].plus(span)), least
    if len(pieces) < _MOST_PIECES:
        return (*pieces, span), least
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    return (*(first.plus(second) for first, second in pairs), span), 2 * least


def _most_drafted(reading: Reading) -> int | None:
    """Largest number of tokens that a round drafts; for a tree, its number of levels. None if unknown."""
    if places := len(reading.interval.accepted_by_position):
        return places
    drafting = reading.drafting or Drafting()
    return drafting.draft_tokens - 1 if drafting.draft_tokens and (drafting.steps or 1) == 1 else drafting.steps

"""What the screen knows: a pure fold of records into one frozen value.

Records are the engine's events and three of the source's own: what is loading, which prompt begins, what failed. Each
is cleaned on its way in. Figures come from `decoder.metrics`; nothing here knows a widget, a clock or a thread.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import msgspec
from msgspec import structs

from decoder.events import End, Event, Figures, Knob, Knobs, Round, Run, Start, Summary
from decoder.grown import Grown
from decoder.knobs import KnobName
from decoder.levels import ROOT_IS_DRAFTED, depth_acceptance, drafted_nodes
from decoder.metrics import Race
from dynatui.clean import clean, clean_line
from dynatui.fold.tokens import Token, tokens_of

WINDOW = 10
"""Rounds that curves are averaged over when the run names no window of its own."""
_MOST_POINTS = 512
_MOST_MARKS = 32
_MOST_CHANGES = 200
_LARGEST = 1e6
_LONGEST_WINDOW = 1000
_KNOBS: tuple[KnobName, ...] = get_args(KnobName)


@dataclass(frozen=True)
class Loading:
    """One line on what the engine is busy with before the first token."""

    message: str


@dataclass(frozen=True)
class Prompt:
    """Which prompt begins, counted from 1."""

    number: int
    total: int


@dataclass(frozen=True)
class Failure:
    """What went wrong and what to do, for the user."""

    message: str
    exit_code: int


Record: TypeAlias = Event | Loading | Prompt | Failure


class Curve(msgspec.Struct, frozen=True):
    """A series over rounds that never grows beyond a bound: when it is full, neighbours are averaged."""

    points: tuple[float, ...] = ()
    stride: int = 1
    """Rounds that one point stands for."""
    waiting: tuple[float, ...] = ()

    def add(self, value: float) -> "Curve":
        """The curve after one more round."""
        waiting = (*self.waiting, value)
        if len(waiting) < self.stride:
            return Curve(self.points, self.stride, waiting)
        points = (*self.points, math.fsum(waiting) / len(waiting))
        if len(points) < _MOST_POINTS:
            return Curve(points, self.stride)
        pairs = zip(points[::2], points[1::2], strict=True)
        return Curve(tuple((a + b) / 2 for a, b in pairs), self.stride * 2)


@dataclass(frozen=True)
class Mark:
    """A knob that the user turned, at the first round under its new value."""

    round: int
    name: KnobName
    old: float
    new: float


@dataclass(frozen=True)
class Change:
    """A knob that has a new value, with the reason where history has one."""

    mark: Mark
    method: str
    by_user: bool
    acceptance: float | None = None
    """Mean depth acceptance over the window, which moved history to it."""

    def repeats(self, other: "Change") -> bool:
        """Whether it is the same turn of the user, told by another method."""
        same = (self.mark.name, self.mark.new) == (other.mark.name, other.mark.new)
        return same and self.by_user and other.by_user and self.method != other.method


class Curves(msgspec.Struct, frozen=True):
    """What the charts draw, of the watched method; the first two are means over the window."""

    acceptance: Curve = Curve()
    tokens: Curve = Curve()
    d0: Curve = Curve()
    tau_h: Curve = Curve()
    rate: Curve = Curve()
    """Tokens a second so far."""
    draft_ms: Curve = Curve()
    verify_ms: Curve = Curve()
    commit_ms: Curve = Curve()


class RunState(msgspec.Struct, frozen=True):
    """Everything that the screen shows about the work."""

    race: Race = msgspec.field(default_factory=Race)
    tokens: Grown[Token] = msgspec.field(default_factory=Grown)
    """What the watched method made of the prompt."""
    past: Grown[Round] = msgspec.field(default_factory=Grown)
    """The watched method's rounds, the oldest first."""
    curves: Curves = Curves()
    marks: tuple[Mark, ...] = ()
    """What the user turned."""
    changes: tuple[Change, ...] = ()
    """What anybody turned, the newest last."""
    recent: tuple[int, ...] = ()
    """Committed tokens of the rounds in the window."""
    shares: tuple[float, ...] = ()
    """Depth acceptance of the newest rounds that drafted, a window of them: what history goes by."""
    settings: Mapping[KnobName, float] = msgspec.field(default_factory=dict)
    """Every knob of any method as it was set last; of `knobs`, the exact values are there."""
    knobs: Knobs | None = None
    history: bool | None = None
    """Whether history moves the knobs; None for a method without knobs."""
    summary: Mapping[str, Figures] | None = None
    ends: Mapping[str, End] = msgspec.field(default_factory=dict)
    prompt: Prompt | None = None
    loading: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def run(self) -> Run | None:
        """The run that is shown."""
        return self.race.run

    @property
    def watched(self) -> str:
        """The method whose text, tree and curves are shown: the first of the run."""
        return next(iter(self.run.methods), "") if self.run else ""

    @property
    def window(self) -> int:
        """Rounds that the curves are averaged over."""
        return min(_LONGEST_WINDOW, max(1, int(self.parameter("window", WINDOW))))

    @property
    def newest(self) -> Round | None:
        """The watched method's last round."""
        return self.past[-1] if self.past else None

    @property
    def rounds(self) -> int:
        """Rounds of the watched method so far."""
        return len(self.past)

    @property
    def prompt_text(self) -> str:
        """What the models continue."""
        return self.run.prompt if self.run else ""

    @property
    def acceptance(self) -> float | None:
        """Mean depth acceptance as history sees it; None before the first draft."""
        return math.fsum(self.shares) / len(self.shares) if self.shares else None

    @property
    def done(self) -> bool:
        """Whether all methods are through with the prompt."""
        return self.summary is not None

    def figures(self) -> Mapping[str, Figures]:
        """Every figure of every method: the engine's own once it has summed up."""
        return self.race.figures() if self.summary is None else self.summary

    def parameter(self, name: str, default: float) -> float:
        """A number among the watched method's parameters; a recording may claim anything."""
        value = self.run.methods[self.watched].get(name) if self.run and self.watched else None
        return float(value) if value is not None and _is_sane(value) else default


def apply(state: RunState, record: Record) -> RunState:
    """The state after one more record."""
    match record:
        case Loading(message):
            return structs.replace(state, loading=(*state.loading, clean_line(message))[-_MOST_MARKS:])
        case Failure(message, exit_code):
            return structs.replace(state, failure=Failure(clean(message), exit_code))
        case Prompt():
            return structs.replace(state, prompt=record, failure=None)
        case Run():
            return _begin(state, _clean_run(record))
        case Start() | Round() | Knob() | End():
            name = clean_line(record.method)
            named = record if name == record.method else structs.replace(record, method=name)
            return _advance(structs.replace(state, race=state.race.apply(named)), named)
        case Summary():
            told = {clean_line(name): figures for name, figures in record.methods.items()}
            return structs.replace(state, summary=told)


def _begin(state: RunState, run: Run) -> RunState:
    fresh = RunState(race=Race().apply(run), prompt=state.prompt, loading=state.loading, settings=_settings(run))
    history = next(iter(run.methods.values()), {}).get("history")
    return structs.replace(fresh, history=history if isinstance(history, bool) else None)


def _settings(run: Run) -> dict[KnobName, float]:
    """The knobs that the methods begin with, those of an earlier method first; a recording may claim anything."""
    found: dict[KnobName, float] = {}
    for method in reversed(run.methods):
        found |= _knobs_of(run, method)
    return found


def _knobs_of(run: Run, method: str) -> dict[KnobName, float]:
    """The knobs that one method begins with."""
    own: dict[str, Any] = dict(run.methods.get(method, {}))
    if method == "fixed":
        tau = own.pop("tau", None)
        own |= {"fixed_depth": own.get("depth"), "fixed_branching": own.get("branching"), "fixed_tau": tau}
    branching = own.get("branching")
    if isinstance(branching, list | tuple):
        own |= zip(("b_min", "b_mid", "b_max"), branching, strict=False)
    return {name: float(own[name]) for name in _KNOBS if _is_sane(own.get(name))}


def _is_sane(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < _LARGEST


def _advance(state: RunState, event: Start | Round | Knob | End) -> RunState:
    if isinstance(event, End):
        end = structs.replace(event, error=clean_line(event.error) if event.error else None)
        return structs.replace(state, ends={**state.ends, event.method: end})
    if isinstance(event, Knob):
        return _knob(state, event)
    if isinstance(event, Round) and event.method == state.watched:
        return _round(state, event)
    return state


def _round(state: RunState, event: Round) -> RunState:
    recent, shares = (*state.recent, len(event.committed))[-state.window :], state.shares
    if drafted_nodes(event):
        rooted = event.method in ROOT_IS_DRAFTED
        share = depth_acceptance(event.parents, event.accepted, root_is_drafted=rooted)
        shares = (*shares, share)[-state.window :]
    round_s = max(0.0, event.t - (state.newest.t if state.newest else 0.0))
    whole = "".join(event.pieces)
    harmless = clean_line(whole) == whole  # as nearly always, and found out at once
    shown = event if harmless else structs.replace(event, pieces=[clean_line(piece) for piece in event.pieces])
    after = structs.replace(
        state,
        past=state.past.plus([shown]),
        tokens=state.tokens.plus(tokens_of(event, round_s)),
        recent=recent,
        shares=shares,
        knobs=event.knobs or state.knobs,
    )
    return structs.replace(after, curves=_extended(after, event))


def _extended(state: RunState, event: Round) -> Curves:
    """The curves after a round; where it drafted nothing, acceptance stays where it was."""
    curves, tally = state.curves, state.race.tallies[event.method]
    rate = tally.timed_tokens / tally.decode_s if tally.decode_s > 0 else 0.0
    return Curves(
        acceptance=curves.acceptance.add(state.acceptance or 0.0),
        tokens=curves.tokens.add(sum(state.recent) / len(state.recent)),
        d0=curves.d0.add(event.knobs.d0) if event.knobs else curves.d0,
        tau_h=curves.tau_h.add(event.knobs.tau_h) if event.knobs else curves.tau_h,
        rate=curves.rate.add(rate),
        draft_ms=curves.draft_ms.add(1000 * (event.draft_s or 0.0)),
        verify_ms=curves.verify_ms.add(1000 * (event.verify_s or 0.0)),
        commit_ms=curves.commit_ms.add(1000 * (event.commit_s or 0.0)),
    )


def _knob(state: RunState, event: Knob) -> RunState:
    """A turn moves the watched method's knobs; one that several methods obey is noted once.

    A method may make another value of the same turn, as the fixed tree of an automatic number of nodes: while the
    watched method runs, it tells what becomes of its own knobs.
    """
    watched, by_user = event.method == state.watched, event.source == "user"
    if not watched and (not by_user or _watched_tells(state, event.name)):
        return state
    state = structs.replace(state, settings={**state.settings, event.name: event.new})
    if watched and event.name == "history":
        state = structs.replace(state, history=bool(event.new))
    elif watched and state.knobs is not None and event.name in Knobs.__struct_fields__:
        state = structs.replace(state, knobs=structs.replace(state.knobs, **{str(event.name): event.new}))
    mean = None if by_user else state.acceptance
    mark = Mark(event.round if watched else state.rounds, event.name, event.old, event.new)
    change = Change(mark, event.method, by_user, mean)
    if any(change.repeats(other) for other in state.changes[-1:]):
        return state
    return structs.replace(
        state,
        marks=(*state.marks, mark)[-_MOST_MARKS:] if by_user else state.marks,
        changes=(*state.changes, change)[-_MOST_CHANGES:],
    )


def _watched_tells(state: RunState, name: KnobName) -> bool:
    """Whether the watched method still runs and has this knob."""
    return state.run is not None and state.watched not in state.ends and name in _knobs_of(state.run, state.watched)


def _clean_run(run: Run) -> Run:
    return structs.replace(
        run,
        target=clean_line(run.target),
        draft=clean_line(run.draft),
        device=clean_line(run.device),
        dtype=clean_line(run.dtype),
        path=clean_line(run.path),
        path_reason=clean_line(run.path_reason),
        prompt=clean(run.prompt),
        methods={clean_line(name): parameters for name, parameters in run.methods.items()},
    )

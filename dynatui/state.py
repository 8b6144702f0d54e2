"""What the screen knows: a pure fold of records into one frozen value.

Records are the engine's events and three of the source's own: what is loading, which prompt begins, what failed. Each
is cleaned on its way in. Figures come from `decoder.metrics`; nothing here knows a widget, a clock or a thread.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from msgspec import structs

from decoder.config import KnobName
from decoder.events import End, Event, Figures, Knob, Knobs, Round, Run, Start, Summary
from decoder.metrics import ROOT_IS_DRAFTED, Race, depth_acceptance
from dynatui.clean import clean, clean_line

Origin: TypeAlias = Literal["prompt", "accepted", "bonus", "plain"]

WINDOW = 10
"""Rounds that curves are averaged over when the run names no window of its own."""
_MOST_POINTS = 512
_MOST_MARKS = 32


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


@dataclass(frozen=True)
class Curve:
    """A series over rounds that never grows beyond a bound: when it is full, neighbours are averaged."""

    points: tuple[float, ...] = ()
    stride: int = 1
    """Rounds that one point stands for."""
    waiting: tuple[float, ...] = ()

    def add(self, value: float) -> "Curve":
        """The curve after one more round."""
        waiting = (*self.waiting, value)
        if len(waiting) < self.stride:
            return replace(self, waiting=waiting)
        points = (*self.points, math.fsum(waiting) / len(waiting))
        if len(points) < _MOST_POINTS:
            return replace(self, points=points, waiting=())
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
class Curves:
    """What the charts draw, of the watched method; the first two are means over the window."""

    acceptance: Curve = Curve()
    tokens: Curve = Curve()
    d0: Curve = Curve()
    tau_h: Curve = Curve()
    rate: Curve = Curve()
    """Tokens a second so far."""


@dataclass(frozen=True)
class RunState:
    """Everything that the screen shows about the work."""

    race: Race = field(default_factory=Race)
    text: tuple[tuple[str, Origin], ...] = ()
    """The prompt and what the watched method made of it."""
    newest: Round | None = None
    """The watched method's last round."""
    bonus: str = ""
    """What the target itself added in it."""
    curves: Curves = Curves()
    marks: tuple[Mark, ...] = ()
    recent: tuple[tuple[float, int], ...] = ()
    """Depth acceptance and committed tokens of the rounds in the window."""
    knobs: Knobs | None = None
    history: bool | None = None
    """Whether history moves the knobs; None for a method without knobs."""
    summary: Mapping[str, Figures] | None = None
    ends: Mapping[str, End] = field(default_factory=dict)
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
        return max(1, int(self.parameter("window", WINDOW)))

    @property
    def rounds(self) -> int:
        """Rounds of the watched method so far."""
        return self.newest.round + 1 if self.newest else 0

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
        sane = isinstance(value, int | float) and math.isfinite(value) and abs(value) < 1e6
        return float(value) if sane and value is not None else default


def apply(state: RunState, record: Record) -> RunState:
    """The state after one more record."""
    match record:
        case Loading(message):
            return replace(state, loading=(*state.loading, clean_line(message))[-_MOST_MARKS:])
        case Failure(message, exit_code):
            return replace(state, failure=Failure(clean(message), exit_code))
        case Prompt():
            return replace(state, prompt=record, failure=None)
        case Run():
            return _begin(state, _clean_run(record))
        case Start() | Round() | Knob() | End():
            named = structs.replace(record, method=clean_line(record.method))
            return _advance(replace(state, race=state.race.apply(named)), named)
        case Summary():
            return replace(state, summary={clean_line(name): figures for name, figures in record.methods.items()})


def _begin(state: RunState, run: Run) -> RunState:
    fresh = RunState(race=Race().apply(run), text=((run.prompt, "prompt"),), prompt=state.prompt, loading=state.loading)
    history = next(iter(run.methods.values()), {}).get("history")
    return replace(fresh, history=history if isinstance(history, bool) else None)


def _advance(state: RunState, event: Start | Round | Knob | End) -> RunState:
    if isinstance(event, End):
        end = structs.replace(event, error=clean_line(event.error) if event.error else None)
        return replace(state, ends={**state.ends, event.method: end})
    if event.method != state.watched:
        return state
    if isinstance(event, Round):
        return _round(state, event)
    if isinstance(event, Knob):
        return _knob(state, event)
    return state


def _round(state: RunState, event: Round) -> RunState:
    pieces = [clean_line(piece) for piece in event.pieces]
    drafted, added = split_origin(event)
    origins: tuple[tuple[str, Origin], ...] = ((clean(drafted), "accepted"), (clean(added), "bonus"))
    if event.draft_forwards is None:
        origins = ((clean(event.text), "plain"),)
    rooted = event.method in ROOT_IS_DRAFTED
    share = depth_acceptance(event.parents, event.accepted, root_is_drafted=rooted)
    recent = (*state.recent, (share, len(event.committed)))[-state.window :]
    return replace(
        state,
        newest=structs.replace(event, pieces=pieces),
        bonus=clean_line(added),
        text=(*state.text, *(span for span in origins if span[0])),
        recent=recent,
        curves=_extended(state, event, recent),
        knobs=event.knobs or state.knobs,
    )


def _extended(state: RunState, event: Round, recent: tuple[tuple[float, int], ...]) -> Curves:
    curves, tally = state.curves, state.race.tallies[event.method]
    rate = tally.timed_tokens / tally.decode_s if tally.decode_s > 0 else 0.0
    return Curves(
        acceptance=curves.acceptance.add(math.fsum(share for share, _ in recent) / len(recent)),
        tokens=curves.tokens.add(sum(tokens for _, tokens in recent) / len(recent)),
        d0=curves.d0.add(event.knobs.d0) if event.knobs else curves.d0,
        tau_h=curves.tau_h.add(event.knobs.tau_h) if event.knobs else curves.tau_h,
        rate=curves.rate.add(rate),
    )


def _knob(state: RunState, event: Knob) -> RunState:
    knobs, history = state.knobs, state.history
    if event.name == "history":
        history = bool(event.new)
    elif knobs is not None:
        knobs = structs.replace(knobs, **{str(event.name): event.new})
    marks = state.marks
    if event.source == "user":
        marks = (*marks, Mark(event.round, event.name, event.old, event.new))[-_MOST_MARKS:]
    return replace(state, knobs=knobs, history=history, marks=marks)


def split_origin(event: Round) -> tuple[str, str]:
    """The round's text in two: what the draft proposed, and what the target added.

    Pieces of half a character do not add up to the text; then the longest beginning that does counts as drafted.
    """
    kept = event.accepted[: len(event.committed)]
    proposed = "".join(event.pieces[node] for node in kept)
    if len(kept) == len(event.committed) or event.text.startswith(proposed):
        cut = len(event.text) if len(kept) == len(event.committed) else len(proposed)
        return event.text[:cut], event.text[cut:]
    same = next((i for i, (a, b) in enumerate(zip(event.text, proposed, strict=False)) if a != b), len(event.text))
    return event.text[:same], event.text[same:]


def _clean_run(run: Run) -> Run:
    return structs.replace(
        run,
        target=clean_line(run.target),
        draft=clean_line(run.draft),
        device=clean_line(run.device),
        dtype=clean_line(run.dtype),
        prompt=clean(run.prompt),
        methods={clean_line(name): parameters for name, parameters in run.methods.items()},
    )

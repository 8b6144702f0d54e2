"""State of a watched server: a pure fold of the server's events; its size is bounded for sessions of any length."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeAlias, assert_never

from dynatui.clean import clean_line
from dynatui.number_format import count, short
from dynatui.servers.attach.course import Course, followed
from dynatui.servers.attach.diagnosis import Seen, findings, unchecked
from dynatui.servers.attach.events import (
    Answer,
    Event,
    Figures,
    Finding,
    Findings,
    Gap,
    Opening,
    Promise,
    Reading,
    RequestSent,
    Server,
    Wasted,
)
from dynatui.servers.attach.servers import KINDS, Kind

HISTORY_LENGTH = 600
_RECENT_S = 10.0
"""Seconds for which a restart or replacement is reported."""

Poll: TypeAlias = Reading | Gap


@dataclass(frozen=True)
class ServerState:
    opening: Opening | None = None
    server: Server | None = None
    past: tuple[Poll, ...] = ()
    reading: Reading | None = None
    missing_since: float | None = None
    """Start of the present series of failed polls, in seconds since the session's start; None while polls succeed."""
    readings: int = 0
    missed: int = 0
    gaps: int = 0
    """Number of series of successive failed polls."""
    restarts: int = 0
    restarted_at: float | None = None
    """Time of the last restart, in seconds since the start of the session."""
    replaced_at: float | None = None
    """Time at which a server of another kind first answered at this address."""
    promise: Promise | None = None
    course: Course = field(default_factory=Course)
    findings: tuple[Finding, ...] = ()
    request: RequestSent | None = None
    answer: Answer | None = None

    @property
    def t(self) -> float:
        return self.past[-1].t if self.past else 0.0

    @property
    def gap(self) -> Gap | None:
        newest = self.past[-1] if self.past else None
        return newest if isinstance(newest, Gap) else None

    @property
    def wasted(self) -> Wasted | None:
        return self.reading.wasted if self.reading else None

    @property
    def began_anew(self) -> bool:
        """Whether the newest metrics page is the first after a restart or a replacement of the server."""
        return self.reading is not None and (self.reading.restarted or self.replaced_at == self.reading.t)

    @property
    def kind(self) -> Kind | None:
        return KINDS.get(self.server.kind) if self.server else None

    @property
    def seen(self) -> Seen | None:
        return Seen(self.kind, self.course, self.promise) if self.kind and self.reading else None


def applied(state: ServerState, event: Event) -> ServerState:
    match event:
        case Reading() | Gap():
            return _polled(replace(state, past=(*state.past, event)[-HISTORY_LENGTH:]), event)
        case Opening() | Server() | Promise():
            return _introduced(state, event)
        case RequestSent():
            return replace(state, request=event, answer=None)
        case Answer():
            return replace(state, answer=event)
        case Findings():
            return state  # the same findings are computed from the readings
        case _:
            assert_never(event)


def _introduced(state: ServerState, event: Opening | Server | Promise) -> ServerState:
    if isinstance(event, Opening):
        return ServerState(opening=event)
    if isinstance(event, Promise):
        return replace(state, promise=event)
    if state.server is None or state.server.kind == event.kind:
        return replace(state, server=event)
    return replace(state, server=event, replaced_at=event.t, course=Course(), findings=())


def _polled(state: ServerState, event: Reading | Gap) -> ServerState:
    if isinstance(event, Gap):
        begins = state.missing_since is None
        since = event.t if begins else state.missing_since
        return replace(state, missing_since=since, missed=state.missed + 1, gaps=state.gaps + begins)
    read = replace(
        state,
        reading=event,
        missing_since=None,
        readings=state.readings + 1,
        restarts=state.restarts + event.restarted,
        restarted_at=event.t if event.restarted else state.restarted_at,
        course=followed(state.course, event),
    )
    return replace(read, findings=findings(read.seen) if read.seen else ())


def fold(events: Iterable[Event], state: ServerState | None = None) -> ServerState:
    return reduce(applied, events, state or ServerState())


def verdict(state: ServerState, *, final: bool) -> Findings:
    """Present findings; if `final`, also why the server could not be compared with the figures of its profile."""
    missing = unchecked(state.seen, state.gap.reason if state.gap else "") if final and not state.findings else None
    kept = None if missing or state.promise is None else not state.findings
    return Findings(t=state.t, kept=kept, findings=(missing,) if missing else state.findings)


def judged(before: ServerState, after: ServerState) -> bool:
    first, second = ([finding.cause for finding in state.findings] for state in (before, after))
    return first != second


def remark(state: ServerState) -> str:
    """A remark on the present state, empty if there is none; may contain control characters from the server."""
    kind, reading = state.kind, state.reading
    if state.gap is not None:
        return f"{state.gap.reason}; trying again"
    if _is_recent(state, state.replaced_at):
        return "a different server now answers at this address: the session's figures start again"
    if kind is None or reading is None or not reading.session.seconds:
        return ""
    if _is_recent(state, state.restarted_at):
        return "the counters have started again: the server has restarted"
    if not tells_of_drafts(reading.session) and not tells_of_drafts(reading.interval):
        missing = kind.speculative[0]
        return (
            f"{kind.title} reports nothing on speculative decoding ({missing} is not among its metrics): the server "
            "decodes without drafts, or has drafted nothing yet"
        )
    idle = reading.session.drafts == 0 and reading.interval.tokens_per_round is None
    return "no token has been drafted since monitoring began" if idle else ""


def _is_recent(state: ServerState, t: float | None) -> bool:
    return t is not None and state.t - t < _RECENT_S


def tells_of_drafts(figures: Figures) -> bool:
    """Whether these figures include any figure of speculative decoding."""
    counts = (figures.drafts, figures.drafted, figures.accepted, figures.tokens_per_round, figures.acceptance_rate)
    return any(count is not None for count in counts)


def line_of(finding: Finding) -> str:
    return clean_line(f"{finding.claim}; {finding.remedy}")


def news(before: ServerState, after: ServerState) -> Iterator[str]:
    """Lines on findings with new causes, and on causes that are no longer found."""
    known, present = ({finding.cause for finding in state.findings} for state in (before, after))
    yield from (line_of(finding) for finding in after.findings if finding.cause not in known)
    yield from (f"no longer found: {cause}" for cause in sorted(known - present) if not after.began_anew)


def final_words(state: ServerState, judged: Findings) -> Iterator[str]:
    """Lines for the end of the session: whether the promise was kept, or why not."""
    if not judged.kept:
        marks = "" if judged.kept is None else "the promise is not kept: "
        yield from (f"{marks}{line_of(finding)}" for finding in judged.findings)
    elif state.promise is not None:
        named = f"{state.promise.profile}, draft {state.promise.draft}"
        yield clean_line(f"the promise of {named} is kept: {compared(state)}")


def compared(state: ServerState) -> str:
    life, chain = state.course.life, state.seen.chain if state.seen else None
    promised = f", promised {short(1 + sum(chain.rates))}" if chain else ""
    return f"L-bar {short(life.length)} in {count(life.rounds)} rounds{promised}"

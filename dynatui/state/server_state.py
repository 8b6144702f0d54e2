"""What is known of a server that is watched: a pure fold of its events, of bounded size however long it is watched."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias, assert_never

from dynatui.attach.events import Answer, Event, Figures, Gap, Opening, Reading, RequestSent, Server, Wasted
from dynatui.attach.servers import KINDS, Kind

KEPT = 600
"""The newest polls that curves are drawn from."""
_RECENT_S = 10.0
"""For so long it is told that a server has begun anew, or is another one."""

Poll: TypeAlias = Reading | Gap


@dataclass(frozen=True)
class ServerState:
    """Everything that the screen shows of a server."""

    opening: Opening | None = None
    server: Server | None = None
    past: tuple[Poll, ...] = ()
    """The newest polls, the oldest first."""
    reading: Reading | None = None
    """The newest page that was read."""
    missing_since: float | None = None
    """When pages began to be missing; None while they come."""
    readings: int = 0
    missed: int = 0
    """Polls that brought nothing."""
    gaps: int = 0
    """Stretches of such polls."""
    restarts: int = 0
    restarted_at: float | None = None
    replaced_at: float | None = None
    """When a server of another kind answered."""
    request: RequestSent | None = None
    """Newest request of the user."""
    answer: Answer | None = None
    """To that; None while it is waited for."""

    @property
    def t(self) -> float:
        """Seconds of the session."""
        return self.past[-1].t if self.past else 0.0

    @property
    def gap(self) -> Gap | None:
        """Why nothing comes at the moment."""
        newest = self.past[-1] if self.past else None
        return newest if isinstance(newest, Gap) else None

    @property
    def wasted(self) -> Wasted | None:
        """That next to nothing of the drafts is accepted, as far as was read."""
        return self.reading.wasted if self.reading else None

    @property
    def began_anew(self) -> bool:
        """Whether the newest page is the first of a server that has restarted or is another one."""
        return self.reading is not None and (self.reading.restarted or self.replaced_at == self.reading.t)

    @property
    def kind(self) -> Kind | None:
        """What the server is, where this program knows it."""
        return KINDS.get(self.server.kind) if self.server else None


def applied(state: ServerState, event: Event) -> ServerState:
    """The state after one more event."""
    match event:
        case Opening():
            return ServerState(opening=event)
        case Server():
            other = state.server is not None and state.server.kind != event.kind
            return replace(state, server=event, replaced_at=event.t if other else state.replaced_at)
        case Reading():
            return replace(
                state,
                past=(*state.past, event)[-KEPT:],
                reading=event,
                missing_since=None,
                readings=state.readings + 1,
                restarts=state.restarts + event.restarted,
                restarted_at=event.t if event.restarted else state.restarted_at,
            )
        case Gap():
            begins = state.missing_since is None
            return replace(
                state,
                past=(*state.past, event)[-KEPT:],
                missing_since=event.t if begins else state.missing_since,
                missed=state.missed + 1,
                gaps=state.gaps + begins,
            )
        case RequestSent():
            return replace(state, request=event, answer=None)
        case Answer():
            return replace(state, answer=event)
        case _:
            assert_never(event)


def fold(events: Iterable[Event], state: ServerState | None = None) -> ServerState:
    """The state after all events."""
    return reduce(applied, events, state or ServerState())


def remark(state: ServerState) -> str:
    """Why nothing comes, or what to know of the figures; foreign text, not cleaned."""
    kind, reading = state.kind, state.reading
    if state.gap is not None:
        return f"{state.gap.reason}; it is asked again"
    if _is_recent(state, state.replaced_at):
        return "another server answers there now: what is of the session began anew"
    if kind is None or reading is None or not reading.session.seconds:
        return ""
    if _is_recent(state, state.restarted_at):
        return "the counters began anew: the server has restarted"
    if not tells_of_drafts(reading.session) and not tells_of_drafts(reading.interval):
        missing = kind.speculative[0]
        return (
            f"{kind.title} tells nothing of speculative decoding ({missing} is not on its page): it runs without, "
            "or has drafted nothing yet"
        )
    idle = reading.session.drafts == 0 and reading.interval.tokens_per_round is None
    return "nothing was drafted since it is watched" if idle else ""


def _is_recent(state: ServerState, t: float | None) -> bool:
    return t is not None and state.t - t < _RECENT_S


def tells_of_drafts(figures: Figures) -> bool:
    """Whether a server tells anything of drafts."""
    counts = (figures.drafts, figures.drafted, figures.accepted, figures.tokens_per_round, figures.acceptance_rate)
    return any(count is not None for count in counts)

"""Figures of a watched server at each load: acceptance, time of a step, and the resulting speed-up."""

from dynatui.number_format import count, ms, percent, short
from dynatui.render.ink import Column, Row, Rows, Sheet, bar, frame, inside, share, wrapped
from dynatui.render.load import load_curve
from dynatui.servers.attach.course import Span
from dynatui.servers.attach.expectation import live_curve
from dynatui.session import Symbols
from dynatui.state.server_state import ServerState

_TITLE: Row = (("Acceptance by running requests", "title"),)
_CURVE_TITLE: Row = (("Speed-up by running requests", "title"),)
_COLUMNS: tuple[Column[Span], ...] = (
    Column("running", 7, lambda span: short(span.timed_running, 1)),
    Column("L-bar", 6, lambda span: short(span.length) if span.rounds else "-"),
    Column("accepted", 9, lambda span: percent(_acceptance(span)) if span.drafted else "-"),
    Column("step ms", 9, lambda span: ms(span.step_s, 1), 1),
    Column("rounds", 9, lambda span: count(span.rounds), 2),
)
_LEAST_BAR, _LONGEST_BAR = 4, 30


def loads(state: ServerState, size: tuple[int, int]) -> Rows:
    width, height = inside(size)
    spans = [span for _, span in sorted(state.course.by_load.items())]
    if not spans:
        unknown = "the server has not reported its number of running requests while it generated tokens"
        return frame(_TITLE, wrapped([(unknown, "dim")], max(1, width)), size)
    sheet = Sheet(_COLUMNS, room=width)
    room = min(_LONGEST_BAR, width - sheet.cells - 1)
    rows: Rows = [((sheet.heads, "dim"),)]
    for span in spans[-max(1, height - 1) :]:
        filled = bar(_acceptance(span), room) if room >= _LEAST_BAR else ""
        rows.append(((sheet.row(span), "strong"), (f" {filled}", "accepted")))
    return frame(_TITLE, rows, size)


def speedups(state: ServerState, size: tuple[int, int], symbols: Symbols) -> Rows:
    promise, load = state.promise, state.course.load
    curve = live_curve(promise, state.course.by_load, state.course.k) if promise else None
    if curve is None:
        needs = "needs --expect FILE and step times of the server without drafts: --baseline FILE"
        return frame(_CURVE_TITLE, wrapped([(needs, "dim")], max(1, inside(size)[0])), size)
    return load_curve(curve, size, symbols, running=load.running if load else None)


def _acceptance(span: Span) -> float:
    return share(span.accepted, span.drafted)

"""Figures of a server by load, measured or expected: acceptance, time of a step, and the resulting speed-up."""

import math
from itertools import chain as joined

import numpy as np

from decoder.append_only import SharedList
from dynatui.number_format import count, ms, percent, short
from dynatui.render.curves import Axis, CurveLine, Flag, Stroke, chart, legend
from dynatui.render.ink import Column, Ink, Row, Rows, Sheet, bar, best_row, frame, inside, share, wrapped
from dynatui.servers.attach.course import Span
from dynatui.servers.attach.expectation import live_curve
from dynatui.servers.costs import LoadCurve
from dynatui.session import Symbols
from dynatui.state.lane import Curve
from dynatui.state.server_state import ServerState

_STYLES: tuple[tuple[Ink, Stroke], ...] = (
    ("second", "dotted"),
    ("third", "dashed"),
    ("bonus", "dotted"),
    ("accepted", "dashed"),
)
"""Styles of the lines for the numbers of drafted tokens; further numbers have no line."""
_OCTAVE = 64
"""Number of positions on the axis between a number of requests and twice this number."""
_EVEN = "break-even"
_CURVE_TITLE: Row = (("Speed-up by running requests", "title"),)


def load_curve(
    curve: LoadCurve, size: tuple[int, int], symbols: Symbols = "braille", *, running: float | None = None
) -> Rows:
    """A framed chart of exactly `size` (columns, rows). `running`, a server's present number of requests, is marked."""
    first, last = _place(curve.streams[0]), _place(curve.streams[-1])
    span = max(1, last - first)
    top = max(2.0, math.ceil(max(*curve.advised, *joined.from_iterable(curve.by_drafted.values()))))
    shown = list(zip(curve.by_drafted.items(), _STYLES, strict=False))

    def line(values: tuple[float, ...], ink: Ink, stroke: Stroke) -> CurveLine:
        places = range(first, first + span + 1)
        streams = [math.log2(each) * _OCTAVE for each in curve.streams]
        points = np.interp([*places], streams, values).tolist()
        return CurveLine(Curve(SharedList(points), SharedList(place + 1 for place in places)), 0.0, top, ink, stroke)

    even = line((1.0,) * len(curve.streams), "ghost", "sparse")
    by_drafted = [line(values, ink, stroke) for (_, values), (ink, stroke) in shown]
    advised = line(curve.advised, "first", "solid")
    flags = [] if running is None else [Flag(_place(max(1.0, running)), "now")]
    axis = Axis(first, span, flags, unit="requests", written=lambda place: short(2 ** (place / _OCTAVE), 0))
    numbers = [f"K {drafted}" for (drafted, _), _ in shown]
    named = legend([advised, *by_drafted, even], ["advised", *numbers, _EVEN])
    gap: Row = (("  ", "plain"),)
    title = best_row(max(0, size[0] - 6), (*_CURVE_TITLE, *gap, *named), named, _CURVE_TITLE)
    return frame(title, chart(advised, even, by_drafted, axis, inside(size), symbols), size)


def _place(streams: float) -> int:
    return round(math.log2(streams) * _OCTAVE)


_TITLE: Row = (("Acceptance by running requests", "title"),)
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

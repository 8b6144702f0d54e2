"""Chart of speed-up by running requests: a line per number of drafted tokens, and a line for the advised numbers."""

import math
from itertools import chain as joined

import numpy as np

from decoder.append_only import SharedList
from dynatui.number_format import short
from dynatui.render.curves import Axis, CurveLine, Flag, Stroke, chart, legend
from dynatui.render.ink import Ink, Row, Rows, best_row, frame, inside
from dynatui.servers.costs import LoadCurve
from dynatui.session import Symbols
from dynatui.state.lane import Curve

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
_TITLE: Row = (("Speed-up by running requests", "title"),)


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
    title = best_row(max(0, size[0] - 6), (*_TITLE, *gap, *named), named, _TITLE)
    return frame(title, chart(advised, even, by_drafted, axis, inside(size), symbols), size)


def _place(streams: float) -> int:
    return round(math.log2(streams) * _OCTAVE)

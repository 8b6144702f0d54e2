"""What is drawn over time: how well the draft guesses, what that yields, and how the knobs follow.

Behind the curves of the run stand those that the user pinned as A, and from their end on what A came to: its mean, its
knobs.
"""

import math

from dynatui.fold.pin import Pin
from dynatui.fold.state import Curve, Curves, Mark
from dynatui.knobs import info
from dynatui.render.chart import Axis, Flag, Line, chart
from dynatui.render.ink import Row, Rows, fit, frame, inside, joined, short, trend, width_of
from dynatui.render.scene import Scene

_WIDE = 54
_LARGEST = 1e6


def acceptance(scene: Scene, width: int, height: int) -> Rows:
    """Acceptance and tokens per round."""
    curves, ghosts = scene.state.curves, _ghosts(scene)
    highest = max((*curves.tokens.points, *ghosts.tokens.points), default=4.0)
    top = max(4.0, float(math.ceil(min(_LARGEST, highest))))
    left, right = Line(curves.acceptance, 0.0, 1.0, "first"), Line(curves.tokens, 1.0, top, "second", "dotted")
    behind = (_behind(ghosts.acceptance, left), _behind(ghosts.tokens, right))
    title = _title(scene, width, ("Acceptance", "tokens/round"), f"mean of {scene.state.window} rounds")
    return _framed(scene, title, (left, right, *behind), (width, height), labelled=False)


def depth(scene: Scene, width: int, height: int) -> Rows:
    """The base depth and the threshold that history and the user move."""
    state, ghosts = scene.state, _ghosts(scene)
    curves = state.curves
    lowest = min((*curves.tau_h.points, *ghosts.tau_h.points, 0.5))
    deepest = max(2.0, state.settings.get("d_max", 8.0))
    left = Line(curves.d0, 0.0, deepest, "first", digits=0)
    right = Line(curves.tau_h, max(0.0, math.floor(lowest * 10) / 10), 1.0, "second", "dotted")
    behind = (_behind(ghosts.d0, left), _behind(ghosts.tau_h, right))
    names = ("D0 base depth", "τh sure from") if width >= _WIDE else ("D0", "τh")
    title = _title(scene, width, names, "▲ your turns")
    return _framed(scene, title, (left, right, *behind), (width, height), labelled=True)


def trends(scene: Scene, width: int, height: int) -> Rows:
    """The same on a single line, for small terminals."""
    del height
    curves = scene.state.curves
    room = max(0, (width - 40) // 3)
    top = max((4.0, *curves.tokens.points))
    deepest = max(2.0, scene.state.settings.get("d_max", 8.0))
    parts: list[Row] = [
        ((" acceptance ", "dim"), (trend(curves.acceptance.points, room, 0.0, 1.0), "first")),
        (("tokens/round ", "dim"), (trend(curves.tokens.points, room, 1.0, top), "second")),
        (("D0 ", "dim"), (trend(curves.d0.points, room, 1.0, deepest), "first")),
    ]
    return [fit(joined(parts, (("  ", "plain"),)), width)]


def looked_at(scene: Scene) -> int | None:
    """The round that the user looks at: the inspected token's, else the last that is shown while looking back."""
    if scene.inspected is not None:
        return scene.inspected.round
    return None if scene.place.live else max(0, scene.place.round - 1)


def _title(scene: Scene, width: int, names: tuple[str, str], note: str) -> Row:
    """Which line is which; the note and then A give way where they do not fit."""
    parts: list[Row] = [
        ((names[0], "title"), (" ━━", "first"), ("  ", "plain"), (names[1], "title"), (" ┅┅", "second"))
    ]
    if scene.pinned is not None:
        parts.append((("  A as pinned", "title"), (" ┄┄", "ghost")))
    row: Row = ()
    for part in (*parts, ((f" ─ {note}", "dim"),)):
        row = (*row, *part) if width_of((*row, *part)) <= max(0, width - 6) or not row else row
    return row


def _framed(scene: Scene, title: Row, lines: tuple[Line, ...], size: tuple[int, int], *, labelled: bool) -> Rows:
    flags = [Flag(mark.round, _label(mark) if labelled else "") for mark in scene.state.marks]
    axis = Axis(_rounds(scene), flags, looked_at(scene))
    left, right, *behind = lines
    return frame(title, chart(left, right, behind, axis, inside(size), scene.symbols), size)


def _rounds(scene: Scene) -> int:
    """Rounds that the axis must hold: of a recording all, and those of A."""
    ghost = scene.pinned.curves.acceptance if scene.pinned else Curve()
    return max(scene.state.rounds, scene.place.rounds, len(ghost.points) * ghost.stride)


def _ghosts(scene: Scene) -> Curves:
    """A's curves, each carried on at the level that A came to."""
    pin = scene.pinned
    if pin is None:
        return Curves()
    count, curves = max(1, len(pin.samples)), pin.curves
    return Curves(
        acceptance=_carried(scene, curves.acceptance, math.fsum(one.depth_acceptance for one in pin.samples) / count),
        tokens=_carried(scene, curves.tokens, sum(one.tokens for one in pin.samples) / count),
        d0=_carried(scene, curves.d0, _in_force(pin, "d0")),
        tau_h=_carried(scene, curves.tau_h, _in_force(pin, "tau_h")),
    )


def _in_force(pin: Pin, name: str) -> float:
    return float(getattr(pin.knobs, name)) if pin.knobs else 0.0


def _carried(scene: Scene, curve: Curve, level: float) -> Curve:
    missing = -(-scene.state.rounds // curve.stride) - len(curve.points)
    return Curve((*curve.points, *[level] * missing), curve.stride) if curve.points else curve


def _behind(curve: Curve, line: Line) -> Line:
    return Line(curve, line.low, line.high, "ghost", "sparse")


def _label(mark: Mark) -> str:
    knob = info(mark.name)
    if mark.name == "history":
        return f"{knob.symbol} {knob.written(mark.new)}"
    return f"{knob.symbol} {_brief(mark, mark.old)}→{_brief(mark, mark.new)}"


def _brief(mark: Mark, value: float) -> str:
    return info(mark.name).written(value) if abs(value) < _LARGEST else short(value)

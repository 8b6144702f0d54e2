"""What is drawn over time: how well the draft guesses, what that yields, and how the knobs follow."""

import math

from dynatui.render.chart import Flag, Line, chart
from dynatui.render.ink import Row, Rows, fit, frame, inside, joined, short, trend
from dynatui.render.scene import Scene
from dynatui.state import Mark

_WIDE = 54
_NAMES = {"tau_h": "τh", "tau_l": "τl", "d0": "D0", "history": "history"}


def acceptance(scene: Scene, width: int, height: int) -> Rows:
    """Acceptance and tokens per round."""
    curves = scene.state.curves
    top = max(4.0, float(math.ceil(min(1e6, max(curves.tokens.points, default=4.0)))))
    lines = (
        Line(curves.acceptance, 0.0, 1.0, "first"),
        Line(curves.tokens, 1.0, top, "second", dotted=True),
    )
    title = _title("Acceptance", "tokens/round", f" ─ mean of {scene.state.window} rounds")
    return _framed(scene, title, lines, (width, height), labelled=False)


def depth(scene: Scene, width: int, height: int) -> Rows:
    """The base depth and the threshold that history and the user move."""
    state = scene.state
    curves = state.curves
    lowest = min((*curves.tau_h.points, 0.5))
    lines = (
        Line(curves.d0, 0.0, state.parameter("d_max", 8), "first", digits=0),
        Line(curves.tau_h, math.floor(lowest * 10) / 10, 1.0, "second", dotted=True),
    )
    title = _title(*(("D0 base depth", "τh sure from") if width >= _WIDE else ("D0", "τh")), " ─ ▲ your turns")
    return _framed(scene, title, lines, (width, height), labelled=True)


def trends(scene: Scene, width: int, height: int) -> Rows:
    """The same on a single line, for small terminals."""
    del height
    curves = scene.state.curves
    room = max(0, (width - 40) // 3)
    top = max((4.0, *curves.tokens.points))
    parts: list[Row] = [
        ((" acceptance ", "dim"), (trend(curves.acceptance.points, room, 0.0, 1.0), "first")),
        (("tokens/round ", "dim"), (trend(curves.tokens.points, room, 1.0, top), "second")),
        (("D0 ", "dim"), (trend(curves.d0.points, room, 1.0, scene.state.parameter("d_max", 8)), "first")),
    ]
    return [fit(joined(parts, (("  ", "plain"),)), width)]


def _title(left: str, right: str, note: str) -> Row:
    return (
        (left, "title"),
        (" ━━", "first"),
        ("  ", "plain"),
        (right, "title"),
        (" ┅┅", "second"),
        (note, "dim"),
    )


def _framed(scene: Scene, title: Row, lines: tuple[Line, Line], size: tuple[int, int], *, labelled: bool) -> Rows:
    flags = [Flag(mark.round, _label(mark) if labelled else "") for mark in scene.state.marks]
    body = chart(*lines, flags, scene.state.rounds, inside(size), scene.symbols)
    return frame(title, body, size)


def _label(mark: Mark) -> str:
    if mark.name == "history":
        return f"history {'on' if mark.new else 'off'}"
    return f"{_NAMES.get(mark.name, mark.name)} {_brief(mark.old)}→{_brief(mark.new)}"


def _brief(value: float) -> str:
    written = short(value)
    return written.rstrip("0").rstrip(".") if "." in written else written

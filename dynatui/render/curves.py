"""Charts over the tokens of the text: acceptance, tokens per round, knobs, depth of the trees.

The curves of the pinned measurement A are behind the curves of the run. After the end of A, each curve of A continues
as a constant, which is A's mean or A's value of the knob. The part of a curve after the shown round is dimmed. Scales
are computed from the rules, not from the figures, so they stay constant.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from decoder.append_only import SharedList
from decoder.tree_rules import tree_rule
from dynatui.knobs import info, rules_in_force
from dynatui.render.chart import Axis, Flag, Line, chart, legend, window
from dynatui.render.ink import Row, Rows, fit, frame, inside, joined, trend, width_of
from dynatui.render.scene import Scale, Scene
from dynatui.render.words import written
from dynatui.state.ab_comparison import Pin
from dynatui.state.lane import Change, Curve, Curves


def scale_of(scene: Scene) -> Scale:
    """Upper ends of the axes; two compared runs have equal ends."""
    if scene.scale is not None:
        return scene.scale
    run = scene.state.run
    return Scale(run.max_new_tokens if run else 1, deepest(scene), scene.state.lane.committed)


def deepest(scene: Scene) -> float:
    """In levels; the newest drafted depth if the rules are unknown."""
    rule = tree_rule(rules_in_force(scene.state))
    if rule is not None:
        return float(rule.growth.deepest)
    return max((curve.points[-1] for curve in (scene.state.lane.curves.depth,) if curve.points), default=1.0)


def acceptance(scene: Scene, width: int, height: int) -> Rows:
    curves = scene.state.lane.curves
    left = Line(curves.acceptance, 0.0, 1.0, "first")
    right = Line(curves.tokens, 1.0, scale_of(scene).top, "second", "dotted")
    ghosts = _ghosts(scene, acceptance=left, tokens=right)
    wordings = (("Depth acceptance", "L-bar"), recent(scene)), (("Depth acc.", "L-bar"), _window_words(scene))
    title = _title(scene, width, (left, right), wordings)
    return _framed(scene, title, (left, right, *ghosts), (width, height), labelled=False)


def depth(scene: Scene, width: int, height: int) -> Rows:
    curves, scale_end = scene.state.lane.curves, scale_of(scene).deepest
    drafted = Line(curves.depth, 0.0, scale_end, "third", "dashed", digits=0)
    if not curves.d0.points:
        ghosts = _ghosts(scene, depth=drafted)
        title = _title(
            scene, width, (drafted,), ((("Depth drafted",), recent(scene)), (("Depth",), _window_words(scene)))
        )
        empty = Line(Curve(), 0.0, scale_end, "third", digits=0)
        return _framed(scene, title, (drafted, empty, *ghosts), (width, height), labelled=True)
    left = Line(curves.d0, 0.0, scale_end, "first", digits=0)
    right = Line(curves.tau_h, 0.0, 1.0, "second", "dotted")
    low = Line(curves.tau_l, 0.0, 1.0, "plain", "dashed")
    ghosts = _ghosts(scene, d0=left, tau_h=right, tau_l=low, depth=drafted)
    note = "▲ your turns"
    wordings = (
        (("D0 base depth", "τh sure from", "τl unsure below", "depth drafted"), note),
        (("D0", "τh", "τl", "drafted"), note),
    )
    title = _title(scene, width, (left, right, low, drafted), wordings)
    return _framed(scene, title, (left, right, *ghosts, low, drafted), (width, height), labelled=True)


def trends(scene: Scene, width: int, _height: int) -> Rows:
    curves, scale, head = scene.state.lane.curves, scale_of(scene), f" {_window_words(scene)}: "
    room = max(0, (width - 36 - len(head)) // 3)
    parts: list[Row] = [
        ((f"{head}depth acc. ", "dim"), (trend(curves.acceptance.points, room, 0.0, 1.0), "first")),
        (("L-bar ", "dim"), (trend(curves.tokens.points, room, 1.0, scale.top), "second")),
        (("depth ", "dim"), (trend(curves.depth.points, room, 0.0, scale.deepest), "third")),
    ]
    return [fit(joined(parts, (("  ", "plain"),)), width)]


def recent(scene: Scene) -> str:
    return f"last {scene.state.lane.window} rounds"


def _window_words(scene: Scene) -> str:
    return f"last {scene.state.lane.window}"


def looked_at(scene: Scene) -> int | None:
    """First token of the inspected round; None while the newest round is shown."""
    newest = scene.state.lane.newest
    return None if scene.place.live or newest is None else newest.position


def _title(scene: Scene, width: int, lines: Sequence[Line], wordings: Sequence[tuple[Sequence[str], str]]) -> Row:
    a: Row = (("  A", "title"), (" ┄┄", "ghost")) if scene.pinned is not None else ()
    pairs: list[tuple[Row, Row]] = [(legend(lines, names), ((f" ─ {note}", "dim"),)) for names, note in wordings]
    fitting: list[Row] = [(*named, *ghost, *note) for ghost in (a, ()) for named, note in pairs]
    fitting += [pairs[-1][0], pairs[-1][0][:2]]
    return next((row for row in fitting if width_of(row) <= max(0, width - 6)), fitting[-1])


def _framed(scene: Scene, title: Row, lines: tuple[Line, ...], size: tuple[int, int], *, labelled: bool) -> Rows:
    end, scale = scene.state.lane.committed, scale_of(scene)
    flags = [
        Flag(mark.token, _label(mark) if labelled else "", "warn" if mark.token <= end else "ghost")
        for mark in scene.newest_state.lane.marks
    ]
    axis = Axis(*window(scale.tokens, scale.newest), flags, looked_at(scene))
    left, right, *background = lines
    return frame(title, chart(left, right, background, axis, inside(size), scene.symbols), size)


def _ghosts(scene: Scene, **lines: Line) -> list[Line]:
    """The names in `lines` are names of curves."""
    of_a = _curves_of_a(scene)
    ghosts = [Line(getattr(of_a, name), line.low, line.high, "ghost", "sparse") for name, line in lines.items()]
    return [*ghosts, *(later for name, line in lines.items() for later in _later(scene, line, name))]


def _later(scene: Scene, line: Line, name: str) -> list[Line]:
    end = scene.state.lane.committed
    whole: Curve = getattr(scene.newest_state.lane.curves, name)
    first = bisect_right(whole.ends[:], end)
    if scene.whole is None or first == len(whole.points):
        return []
    points, ends = SharedList([math.nan, *whole.points[first:]]), SharedList([end, *whole.ends[first:]])
    return [replace(line, curve=Curve(points, ends), ink="ghost")]


def _curves_of_a(scene: Scene) -> Curves:
    """A's curves, each continued as a constant: A's mean, or A's value of the knob."""
    pin, end = scene.pinned, scene.state.lane.committed
    if pin is None:
        return Curves()
    count, curves = max(1, len(pin.samples)), pin.curves
    return Curves(
        acceptance=_carried(
            curves.acceptance, math.fsum(sample.depth_acceptance for sample in pin.samples) / count, end
        ),
        tokens=_carried(curves.tokens, sum(sample.tokens for sample in pin.samples) / count, end),
        d0=_carried(curves.d0, _in_force(pin, "d0"), end),
        tau_h=_carried(curves.tau_h, _in_force(pin, "tau_h"), end),
        tau_l=_carried(curves.tau_l, _in_force(pin, "tau_l"), end),
        depth=_carried(curves.depth, sum(sample.depth for sample in pin.samples) / count, end),
    )


def _in_force(pin: Pin, name: str) -> float:
    return float(getattr(pin.knobs, name)) if pin.knobs else 0.0


def _carried(curve: Curve, level: float, end: int) -> Curve:
    if not curve.points or end <= curve.ends[-1]:
        return curve
    return Curve(curve.points.plus([level]), curve.ends.plus([end]), curve.stride)


def _label(mark: Change) -> str:
    knob = info(mark.name)
    if mark.name == "history":
        return f"{knob.symbol} {knob.written(mark.new)}"
    return f"{knob.symbol} {written(knob, mark.old)}→{written(knob, mark.new)}"

"""The knobs as sliders, and why history moves them, in one line."""

import math
from dataclasses import dataclass

from decoder.config import KnobName
from decoder.events import Knobs
from dynatui.render.ink import Ink, Row, Rows, best, fit, frame, inside, share, short
from dynatui.render.scene import Scene

_BORDER = 3
_REASON = 52
"""Cells of a history line besides its middle."""


@dataclass(frozen=True)
class _Slider:
    name: KnobName
    label: str
    meaning: str
    keys: str
    low: float
    high: float
    digits: int


def knobs(scene: Scene, width: int, height: int) -> Rows:
    """Sliders in a row with history's reasoning below; framed where there is height for it."""
    framed = height > _BORDER
    inner = inside((width, height))[0] if framed else width - 1
    body = [_sliders(scene, inner), history_line(scene, inner)]
    if not framed:
        return [fit(((" ", "plain"), *row), width) for row in body[:height]]
    title: Row = (("Knobs", "title"), (" ─ turn them while it runs; in force from the next round", "dim"))
    return frame(title, body, (width, height))


def _sliders(scene: Scene, width: int) -> Row:
    state = scene.state
    if state.knobs is None:
        return (("this method has no knobs" if state.newest else "the knobs come with the first round", "dim"),)
    highest = max(2.0, state.parameter("d_max", 8) - 1)
    sliders = (
        _Slider("tau_h", "τh", "sure from", "[ ]", 0.0, 1.0, 2),
        _Slider("tau_l", "τl", "unsure below", "{ }", 0.0, 1.0, 2),
        _Slider("d0", "D0", "base depth", "- =", 1.0, highest, 2),
    )
    history = scene.wanted.get("history", state.history)
    tail: Row = (("history ", "plain"), ("h ", "key"), ("on " if history else "off", "good"))
    each = (width - 14) // len(sliders)
    row: Row = ()
    for slider in sliders:
        row = (*row, *fit(_slider(slider, state.knobs, scene.wanted.get(slider.name), each - 2), each))
    return (*row, *tail)


def _slider(slider: _Slider, in_force: Knobs, wanted: float | None, width: int) -> Row:
    value = float(getattr(in_force, slider.name))
    label = f"{slider.label} {slider.meaning} " if width >= 30 else f"{slider.label} "
    figure = f" {short(value, slider.digits)}" if wanted is None else f" →{short(wanted, slider.digits)}"
    track = max(3, width - len(label) - len(slider.keys) - 1 - 6)
    at = round(share((value if wanted is None else wanted) - slider.low, slider.high - slider.low) * (track - 1))
    ink: Ink = "strong" if wanted is None else "warn"
    return (
        (label, "plain"),
        (f"{slider.keys} ", "key"),
        ("─" * at, "second"),
        ("●", "strong"),
        ("─" * (track - 1 - at), "frame"),
        (figure, ink),
    )


def history_line(scene: Scene, width: int) -> Row:
    """What history does with the knobs now, and why."""
    state = scene.state
    if state.history is None or state.knobs is None:
        return (("", "dim"),)
    if not state.history:
        return (("history is off: D0 and τh stay where you put them", "dim"),)
    window, aim = state.window, state.parameter("target_acceptance", 0.7)
    if len(state.recent) < window:
        return ((f"history looks at the first {window} rounds: {len(state.recent)} so far", "dim"),)
    mean = math.fsum(part for part, _ in state.recent) / window
    used, room = math.floor(state.knobs.d0 + 0.5), width - _REASON
    if abs(mean - aim) < 0.005:
        verdict, steps = "=", "hold"
    elif mean > aim:
        verdict, steps = ">", "D0 up, τh down"
    else:
        verdict, steps = "<", "D0 down, τh up"
    return (
        ("history: ", "plain"),
        (f"acceptance {short(mean)} {verdict} {short(aim)}", "strong"),
        (best(room, f" over the last {window} rounds: {steps}", f": {steps}"), "plain"),
        (f" (D0 {short(state.knobs.d0)}, used as {used})", "dim"),
    )

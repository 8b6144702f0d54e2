"""The knobs that matter most as sliders, why history moves them, and how A and B compare.

`hit` is drawing the other way round: both go by `_places`.
"""

from dataclasses import dataclass

from decoder.knobs import KnobName
from dynatui.fold.pin import LABELS, LEAST, Pin, compared, sentence, verdict
from dynatui.fold.state import Change, RunState
from dynatui.knobs import KnobInfo, info
from dynatui.render.ink import Ink, Row, Rows, best, fit, fitting, frame, inside, short, width_of
from dynatui.render.scene import Scene
from dynatui.render.track import Track
from dynatui.render.words import reason, sign, target, turned, versus

_BORDER = 3
_TAIL = 14
"""Cells of the switch for history at the right end."""
_FIGURE = 6
_LONG = 30
"""Cells from which a slider says what it means."""
_SHORT = 18
"""Cells from which it names its keys."""


@dataclass(frozen=True)
class _Place:
    """Where a slider is in its row."""

    knob: KnobInfo
    label: str
    keys: str
    track: Track
    width: int


_SLIDERS: tuple[tuple[KnobName, str, str], ...] = (
    ("tau_h", "sure from", "[ ]"),
    ("tau_l", "unsure below", "{ }"),
    ("d0", "base depth", "- ="),
)


def knobs(scene: Scene, width: int, height: int) -> Rows:
    """Sliders in a row, history's reasoning and the comparison below; framed where there is height for it."""
    framed = height > _BORDER
    inner, room = inside((width, height)) if framed else (width - 1, height)
    told = [history_line(scene, inner)]
    if scene.pinned is not None:
        comparison = compared_line(scene.pinned, scene.state, inner)
        told = [*told, comparison] if room > len(told) + 1 else [comparison]
    body = [_sliders(scene, inner), *told]
    if not framed:
        return [fit(((" ", "plain"), *row), width) for row in [*body, *[()] * height][: max(0, room)]]
    recorded = scene.replaying or scene.following
    how = "as recorded" if recorded else "turn them while it runs; in force from the next round"
    title: Row = (("Knobs", "title"), (f" ─ {how}; k shows all", "dim"))
    return frame(title, body, (width, height))


def hit(scene: Scene, width: int, height: int, x: int, y: int) -> tuple[KnobName, float] | None:
    """The knob and the value that a click or a drag at a cell of the panel asks for."""
    framed = height > _BORDER
    inner = inside((width, height))[0] if framed else width - 1
    left, top = (2, 1) if framed and inner < width - 1 else (0 if framed else 1, 0)
    if y != top or scene.state.knobs is None or not 0 <= x - left < inner:
        return None
    for place in _places(scene.state, inner):
        asked = place.track.asked(x - left, place.knob)
        if asked is not None:
            return place.knob.name, asked
    history = scene.wanted.get("history", scene.state.history)
    at_tail = x - left >= sum(place.width for place in _places(scene.state, inner))
    return ("history", 0.0 if history else 1.0) if at_tail and history is not None else None


def _places(state: RunState, width: int) -> list[_Place]:
    each = max(1, (width - _TAIL) // len(_SLIDERS))
    deepest = max(2.0, state.settings.get("d_max", 8.0) - 1)
    places = []
    for number, (name, meaning, caps) in enumerate(_SLIDERS):
        knob = info(name)
        label = f"{knob.symbol} {meaning} " if each >= _LONG + 2 else f"{knob.symbol} "
        keys = f"{caps} " if each >= _SHORT else ""
        low, high = (1.0, deepest) if name == "d0" else (0.0, 1.0)
        before = len(label) + len(keys)
        cells = max(0, each - 2 - before - _FIGURE)
        places.append(_Place(knob, label, keys, Track(number * each + before, cells, low, high), each))
    return places


def _sliders(scene: Scene, width: int) -> Row:
    state = scene.state
    if state.knobs is None:
        return (("this method has no knobs" if state.newest else "the knobs come with the first round", "dim"),)
    row: Row = ()
    for place in _places(state, width):
        value, wanted = float(getattr(state.knobs, place.knob.name)), scene.wanted.get(place.knob.name)
        ends = place.track.low, place.track.high
        figure = f" {short(value)}" if wanted is None else f" →{short(wanted)}"
        ink: Ink = "strong" if wanted is None else "warn"
        drawn = place.track.drawn(value, wanted=wanted, start=None, ends=ends)
        slider: Row = ((place.label, "plain"), (place.keys, "key"), *drawn, (figure, ink))
        row = (*row, *fit(slider, place.width))
    wanted = scene.wanted.get("history")
    history = state.history if wanted is None else bool(wanted)
    pending, ink = ("", "good") if wanted is None else ("→", "warn")
    return (*row, ("history ", "plain"), ("h ", "key"), (f"{pending}{'on' if history else 'off'}", ink))


def history_line(scene: Scene, width: int) -> Row:
    """What history did last with the knobs and what it does now, each with its reason."""
    state = scene.state
    if state.history is None or state.knobs is None:
        return ()
    if not state.history:
        return (("history is off: D0 and τh stay where you put them", "dim"),)
    if len(state.shares) < state.window:
        return ((f"history looks at the first {state.window} rounds that draft: {len(state.shares)} so far", "dim"),)
    last = _last(state)
    if last is None:
        return (("history: ", "plain"), *_now(state, width - len("history: ")))
    done: Row = (("history: ", "plain"), (turned(last), "strong"), (f": {reason(last, state)}", "plain"))
    since: Row = ((f" (round {last.mark.round})", "dim"),)
    now: Row = (("; now ", "dim"), *_now(state, 0))
    return next((row for row in ((*done, *since, *now), (*done, *since), done) if width_of(row) <= width), done)


def compared_line(pinned: Pin, state: RunState, width: int) -> Row:
    """What the pinned settings, A, and those in force, B, yield, with intervals."""
    now = pinned.since(state)
    found = compared(pinned.samples, now)
    head: Row = (("A/B ", "title"),)
    if found is None:
        side, rounds = ("A", len(pinned.samples)) if len(pinned.samples) < LEAST else ("B", len(now))
        told = f"{side} has {rounds} of the {LEAST} rounds that a comparison needs"
        return (*head, (best(width - 4, told, f"{side} {rounds}/{LEAST} rounds"), "dim"))
    clear = next((f"{LABELS[one.figure]}: {verdict(one)}" for one in found if one.clear), "no clear difference so far")
    parts: list[Row] = [((f"  {sentence(one)}", "dim"),) for one in found]
    return fitting([(*head, (clear, "strong")), *parts, (("  95 % intervals", "dim"),)], width)


def _last(state: RunState) -> Change | None:
    """What history did last; of two knobs at once, the base depth."""
    own = [change for change in state.changes if not change.by_user]
    newest = [change for change in own if change.mark.round == own[-1].mark.round]
    return next((change for change in newest if change.mark.name == "d0"), own[-1] if own else None)


def _now(state: RunState, width: int) -> Row:
    """Where history is going."""
    mean, aim = state.acceptance or 0.0, target(state)
    verdict = sign(mean, aim)
    steps = {"=": "holds", ">": "D0 up, τh down", "<": "D0 down, τh up"}[verdict]
    figures = versus(mean, aim)
    long = f"depth acceptance {figures} over the last {state.window} rounds: {steps}"
    return ((best(width, long, f"depth acceptance {figures}: {steps}") if width else f"{figures}: {steps}", "plain"),)

"""Turns of knobs in words: what changed, and why history did it."""

import math
from dataclasses import replace

from dynatui.fold.state import Change, RunState
from dynatui.knobs import info
from dynatui.render.ink import short

TARGET = 0.7
"""Depth acceptance that history aims at, where the run names none."""


def turned(change: Change) -> str:
    """A knob's old and new value: D0 5 → 6; as history uses it where that is what changed."""
    mark, knob = change.mark, info(change.mark.name)
    old, new = _used(mark.old), _used(mark.new)
    if mark.name == "d0" and not change.by_user and old != new:
        return f"{knob.symbol} {old} → {new}"
    return f"{knob.symbol} {value(change, mark.old)} → {value(change, mark.new)}"


def continues(change: Change, before: Change) -> bool:
    """Whether history moved the same knob on in the same direction."""
    if change.by_user or before.by_user or change.mark.name != before.mark.name:
        return False
    return (change.mark.new > change.mark.old) == (before.mark.new > before.mark.old)


def joint(change: Change, before: Change) -> Change:
    """Two moves as one, told with the reason of the last."""
    return replace(change, mark=replace(change.mark, old=before.mark.old))


def value(change: Change, number: float) -> str:
    """A knob's value as people write it, whatever a recording claims."""
    if not math.isfinite(number) or abs(number) >= 1e6:
        return short(number)
    return info(change.mark.name).written(number)


def reason(change: Change, state: RunState) -> str:
    """What moved history: depth acceptance .78 > .70 over 10 rounds; nothing for a user's turn."""
    if change.by_user or change.acceptance is None:
        return ""
    rounds = min(state.window, max(1, change.mark.round))
    return f"depth acceptance {versus(change.acceptance, target(state))} over {rounds} rounds"


def versus(mean: float, aim: float) -> str:
    """A mean and its aim: .78 > .70."""
    return f"{short(mean)} {sign(mean, aim)} {short(aim)}"


def target(state: RunState) -> float:
    """The depth acceptance that history aims at."""
    return state.parameter("target_acceptance", TARGET)


def sign(mean: float, aim: float) -> str:
    """How a mean compares with its aim, as far as two decimals tell."""
    written, wanted = round(mean, 2), round(aim, 2)
    return "=" if written == wanted else ">" if mean > aim else "<"


def _used(d0: float) -> str:
    return f"{math.floor(d0 + 0.5)}" if math.isfinite(d0) and abs(d0) < 1e6 else short(d0)

"""The drawer: every knob of this run's methods as a slider of one row, with its bounds and where it began.

`hit` is drawing the other way round: both go by `_columns` and `_first`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from decoder.config import MOST, DynaTree, Fixed, Linear, RunConfig
from decoder.knobs import KNOBS, KnobName
from dynatui.fold.state import RunState, apply
from dynatui.knobs import KnobInfo, info, rules_in_force
from dynatui.render.ink import Ink, Row, Rows, best, column, frame, inside, short
from dynatui.render.scene import Scene
from dynatui.render.track import Track

_MARK, _SYMBOL, _VALUE, _PENDING, _BOUNDS, _METHODS = 2, 10, 7, 8, 13, 18
_LEAST_TRACK, _MOST_TRACK = 6, 48
_MEANING = 41
_LEAST_HELP = 3
_LARGEST = 1e6
_UNIT: frozenset[KnobName] = frozenset(("tau_h", "tau_l", "rho_stop", "rho_deep", "tau", "fixed_tau"))
"""Probabilities: their scale is 0 to 1, whatever the bounds of the moment are."""
_OF_FIXED: frozenset[KnobName] = frozenset(("fixed_depth", "fixed_branching", "fixed_tau"))
_BRANCHES: tuple[KnobName, ...] = ("b_min", "b_mid", "b_max")
_FIRST: dict[KnobName, int] = {"k": Linear.k, "fixed_depth": Fixed.depth, "fixed_branching": Fixed.branching}
"""Knobs of the simpler methods, as the program begins with them."""


@dataclass(frozen=True)
class _Columns:
    """Cells of each column; the meaning gives way first, then the methods, then the bounds."""

    track: int
    bounds: int
    methods: int
    meaning: int


def drawer(scene: Scene, width: int, height: int) -> Rows:
    """Sliders with the chosen one marked, and a line on how to set it."""
    inner, room = inside((width, height))
    names = shown(scene.state)
    if not names:
        return frame(_title(scene), [(("no method of this run has knobs", "dim"),)], (width, height))
    settings = _Settings.of(scene)
    body = [_row(scene, settings, name, inner) for name in names]
    listed = _listed(room)
    first = _first(scene, names, listed)
    page = body[first : first + listed]
    if room > listed:
        page = [*page, *[()] * (listed - len(page)), _help(scene, names, inner)]
    return frame(_title(scene), page, (width, height))


def hit(scene: Scene, width: int, height: int, x: int, y: int) -> tuple[KnobName, float] | None:
    """The knob and the value that a click or a drag at a cell of the panel asks for."""
    inner, room = inside((width, height))
    left, top = (width - inner) // 2, (height - room) // 2
    names = shown(scene.state)
    place = y - top
    if not 0 <= place < _listed(room):
        return None
    place += _first(scene, names, _listed(room))
    if place >= len(names):
        return None
    track = _track(names[place], _Settings.of(scene), inner)
    asked = track.asked(x - left, info(names[place])) if 0 <= x - left < inner else None
    return None if asked is None else (names[place], asked)


def shown(state: RunState) -> tuple[KnobName, ...]:
    """Knobs of the methods in this run, in the order of the drawer."""
    return tuple(name for name in KNOBS if name in state.settings)


def ends_of(state: RunState) -> Mapping[KnobName, tuple[float, float]]:
    """How far each knob can be turned now."""
    return _config(state).ends()


@dataclass(frozen=True)
class _Settings:
    """Values in force and at the start, and the bounds of the moment."""

    now: Mapping[KnobName, float]
    start: Mapping[KnobName, float]
    ends: Mapping[KnobName, tuple[float, float]]

    @classmethod
    def of(cls, scene: Scene) -> "_Settings":
        state = scene.state
        now = dict(state.settings)
        if state.knobs is not None:
            now |= {"tau_h": state.knobs.tau_h, "tau_l": state.knobs.tau_l, "d0": state.knobs.d0}
        if state.history is not None:
            now["history"] = float(state.history)
        start = apply(RunState(), structs.replace(state.run, prompt="")).settings if state.run else {}
        return cls(now, start, ends_of(state))


def _config(state: RunState) -> RunConfig:
    """The rules in force; those of the program where a recording claims what are none."""
    whole = {name: min(MOST, max(1, int(state.settings.get(name, least)))) for name, least in _FIRST.items()}
    fixed = Fixed(depth=whole["fixed_depth"], branching=whole["fixed_branching"])
    return RunConfig(dynatree=rules_in_force(state) or DynaTree(), linear=Linear(whole["k"]), fixed=fixed)


def _columns(width: int) -> _Columns:
    free = width - _MARK - _SYMBOL - _VALUE - _PENDING - _LEAST_TRACK
    bounds = _BOUNDS if free >= _BOUNDS else 0
    methods = _METHODS if free - bounds >= _METHODS else 0
    meaning = _MEANING if free - bounds - methods >= _MEANING else 0
    track = min(_MOST_TRACK, max(0, free + _LEAST_TRACK - bounds - methods - meaning))
    return _Columns(track, bounds, methods, meaning)


def _track(name: KnobName, settings: _Settings, width: int) -> Track:
    low, high = settings.ends[name]
    if name in _UNIT:
        low, high = 0.0, 1.0
    elif name in _BRANCHES:
        low, high = 1.0, settings.ends["b_max"][1]
    return Track(_MARK + _SYMBOL, _columns(width).track, low, high)


def _row(scene: Scene, settings: _Settings, name: KnobName, width: int) -> Row:
    knob, columns, wanted = info(name), _columns(width), scene.wanted.get(name)
    chosen, ends = name == scene.slider, settings.ends[name]
    value, start = settings.now[name], settings.start.get(name)
    pending = f"→{_written(knob, wanted)}" if wanted is not None else ""
    if chosen and scene.typed:
        pending = f"{scene.typed}_"
    drawn = _track(name, settings, width).drawn(value, wanted=wanted, start=start, ends=ends)
    bounds = f"{_written(knob, ends[0])} to {_written(knob, ends[1])}"
    ink: Ink = "strong" if chosen else "plain"
    return (
        ("▸ " if chosen else "  ", "key"),
        (column(knob.symbol, _SYMBOL), ink),
        *drawn,
        (f"{_written(knob, value):>{_VALUE - 1}} ", ink),
        (column(pending, _PENDING), "warn"),
        (column(bounds, columns.bounds), "dim"),
        (column(knob.meaning, columns.meaning), ink),
        (column(", ".join(_owners(scene.state, name)), columns.methods), "dim"),
    )


def _written(knob: KnobInfo, value: float) -> str:
    return knob.written(value) if abs(value) < _LARGEST else short(value)


def _owners(state: RunState, name: KnobName) -> list[str]:
    """Methods of this run that obey a knob."""
    return [method for method, given in (state.run.methods if state.run else {}).items() if _has(method, given, name)]


def _has(method: str, given: Mapping[str, Any], name: KnobName) -> bool:
    if name in _BRANCHES:
        return isinstance(given.get("branching"), list | tuple)
    if name in _OF_FIXED:
        return method == "fixed"
    return name in given and (method, name) != ("fixed", "tau")


def _listed(room: int) -> int:
    """Rows for sliders; the last row of several tells how to set the chosen one."""
    return room - 1 if room >= _LEAST_HELP else max(0, room)


def _first(scene: Scene, names: tuple[KnobName, ...], listed: int) -> int:
    """The first slider that is shown, so that the chosen one is."""
    chosen = names.index(scene.slider) if scene.slider in names else 0
    return max(0, min(chosen - listed // 2, len(names) - listed))


def _help(scene: Scene, names: tuple[KnobName, ...], width: int) -> Row:
    if scene.slider not in names:
        return (("↑ ↓ ", "key"), ("choose a slider", "dim"))
    knob = info(scene.slider)
    if scene.typed:
        how = best(width - _SYMBOL, f"type a value: {scene.typed}_  enter sets it, backspace rubs out", scene.typed)
        return ((f"{knob.symbol}  ", "strong"), (how, "warn"))
    signs = "; ● in force, ○ asked for, ┼ where the run began"
    wordings = (f"{knob.meaning}; ← → turn it, or type a value{signs}", f"{knob.meaning}{signs}", knob.meaning)
    return ((f"{knob.symbol}  ", "strong"), (best(width - len(knob.symbol) - 2, *wordings), "dim"))


def _title(scene: Scene) -> Row:
    recorded = scene.replaying or scene.following
    how = "as recorded" if recorded else "↑ ↓ choose, ← → turn, digits type a value, esc closes"
    return (("All knobs", "title"), (f" ─ {how}", "dim"))

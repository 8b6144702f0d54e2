"""The drawer: one row with a slider for each knob of the watched method; `hit` returns the clicked knob and value."""

from collections.abc import Mapping

from decoder.knobs import KnobName, TunableParameters
from dynatui.knobs import choices, info, rules_in_force, sampling_in_force
from dynatui.render.ink import Ink, Row, Rows, best, column, fit, framed, inside, shortened, wrapped
from dynatui.render.scene import Scene
from dynatui.render.sliders import Track, knobs_title, notes
from dynatui.render.words import written
from dynatui.state.lane import begun
from dynatui.state.run_state import RunState

_MARK, _SYMBOL, _VALUE, _PENDING, _BOUNDS = 2, 10, 7, 8, 13
_LEAST_TRACK, _MOST_TRACK = 6, 48
_MEANING = 41
_LEAST_HELP = 3
_PAIR = 2
"""Number of values of an on/off knob; if a knob has more, the value's name extends over the column of bounds."""
_NOTES = 2
"""Number of rows for notes: the comparison of A and B, and the effect of the last knob change."""


@framed
def drawer(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    keys = f"{_key_pair(scene, 'slider')} choose, {_key_pair(scene, 'nudge')} turn, digits type a value"
    title, names = knobs_title(scene, "All knobs", keys, "", width - 4), listed_knobs(scene.state)
    if not names:
        return title, [(("the knobs appear with the first round", "dim"),)]
    body = [_row(scene, rules, name, width) for rules in _sets(scene.state) for name in rules.ends()]
    listed = _listed(height, len(names))
    first = _first_row(scene, names, listed)
    page = body[first : first + listed]
    if height > listed:
        page = [*page, *[()] * (listed - len(page)), *_help(scene, names, width)[: height - listed]]
    if rules_in_force(scene.state) is None:
        hint = f"{scene.state.watched} has no other knobs; {scene.keys.cap('watch(1)')} watches another method"
        page[len(names) : len(names) + 1] = [((hint, "dim"),)]
    return title, [*page, *notes(scene, width, height - len(page))]


def hit(scene: Scene, width: int, height: int, x: int, y: int) -> tuple[KnobName, float] | None:
    inner, room = inside((width, height))
    left, top = (width - inner) // 2, (height - room) // 2
    names = listed_knobs(scene.state)
    place, listed = y - top, _listed(room, len(names))
    if not 0 <= place < min(listed, len(names)):
        return None
    name = names[place + _first_row(scene, names, listed)]
    track = _track(name, _ends(scene.state, name), inner)
    value = track.value_at(x - left, info(name)) if 0 <= x - left < inner else None
    return None if value is None else (name, value)


def listed_knobs(state: RunState) -> tuple[KnobName, ...]:
    return tuple(name for rules in _sets(state) for name in rules.ends())


def _sets(state: RunState) -> list[TunableParameters]:
    return [rules for rules in (rules_in_force(state), sampling_in_force(state)) if rules is not None]


def _ends(state: RunState, name: KnobName) -> Mapping[KnobName, tuple[float, float]]:
    """Bounds of all knobs in the parameter set that contains this knob."""
    return next(ends for rules in _sets(state) if name in (ends := rules.ends()))


def _columns(width: int) -> tuple[int, int, int]:
    """Widths of track, bounds and meaning, in cells; 0 for a column that does not fit."""
    free = width - _MARK - _SYMBOL - _VALUE - _PENDING - _LEAST_TRACK
    bounds = _BOUNDS if free >= _BOUNDS else 0
    meaning = _MEANING if free - bounds >= _MEANING else 0
    return min(_MOST_TRACK, max(0, free + _LEAST_TRACK - bounds - meaning)), bounds, meaning


def _track(name: KnobName, ends: Mapping[KnobName, tuple[float, float]], width: int) -> Track:
    scale = [*ends[name]]
    if info(name).kind == "probability":
        scale = [0.0, 1.0]
    elif info(name).part is not None:  # knobs that are elements of one parameter have the same scale
        scale = [end for other in ends if info(other).parameter == info(name).parameter for end in ends[other]]
    return Track(_MARK + _SYMBOL, _columns(width)[0], min(scale), max(scale))


def _row(scene: Scene, rules: TunableParameters, name: KnobName, width: int) -> Row:
    knob, pending_value, (_, for_bounds, for_meaning) = info(name), scene.pending.get(name), _columns(width)
    chosen, all_ends = name == _slider(scene, listed_knobs(scene.state)), rules.ends()
    value, ends = rules.knob(name), all_ends[name]
    start = begun(scene.state.watched, scene.state.run).settings.get(name) if scene.state.run else None
    pending = f"→{written(knob, pending_value)}" if pending_value is not None else ""
    if chosen and scene.typed:
        pending = f"{scene.typed}_"
    track = _track(name, all_ends, width).row(value, pending=pending_value, start=start, ends=ends)
    ink: Ink = "strong" if chosen else "plain"
    head: Row = (("▸ " if chosen else "  ", "key"), (column(knob.symbol, _SYMBOL), ink), *track)
    meaning: Row = ((column(knob.meaning, for_meaning), ink),)
    if len(knob.values) > _PAIR:
        named: Row = ((f" {written(knob, value)} ", ink), (pending, "warn"))
        room = _VALUE + _PENDING + for_bounds
        return (*head, *fit(shortened(named, room - 1), room), *meaning)
    bounds = f"{written(knob, ends[0])} to {written(knob, ends[1])}"
    return (
        *head,
        (f"{written(knob, value):>{_VALUE - 1}} ", ink),
        (column(pending, _PENDING), "warn"),
        (column(bounds, for_bounds), "dim"),
        *meaning,
    )


def _listed(room: int, knobs: int) -> int:
    if room < _LEAST_HELP:
        return max(0, room)
    return min(room - 1, max(knobs, room - 1 - _NOTES))


def _slider(scene: Scene, names: tuple[KnobName, ...]) -> KnobName:
    return scene.slider if scene.slider in names else names[0]


def _first_row(scene: Scene, names: tuple[KnobName, ...], listed: int) -> int:
    chosen = names.index(_slider(scene, names)) if names else 0
    return max(0, min(chosen - listed // 2, len(names) - listed))


def _help(scene: Scene, names: tuple[KnobName, ...], width: int) -> Rows:
    knob = info(_slider(scene, names))
    if scene.typed:
        sets, rubs = scene.keys.cap("set_typed"), scene.keys.cap("rub_out")
        how = best(width - _SYMBOL, f"type a value: {scene.typed}_  {sets} sets it, {rubs} deletes", scene.typed)
        return [((f"{knob.symbol}  ", "strong"), (how, "warn"))]
    signs = "; ● in force, ○ pending, ┼ at the start of the run"
    if len(knob.values) > _PAIR:
        ends = _ends(scene.state, knob.name)[knob.name]
        numbered = ", ".join(f"{place} {name}" for place, name in choices(knob, ends).items())
        how = f"{knob.meaning}; {_key_pair(scene, 'nudge')} turn it, or type the number: {numbered}"
        return wrapped(((f"{knob.symbol}  ", "strong"), (how, "dim")), width)
    words = best(width - len(knob.symbol) - 2, f"{knob.meaning}{signs}", knob.meaning)
    return [((f"{knob.symbol}  ", "strong"), (words, "dim"))]


def _key_pair(scene: Scene, action: str) -> str:
    return f"{scene.keys.cap(f'{action}(-1)')} {scene.keys.cap(f'{action}(1)')}"

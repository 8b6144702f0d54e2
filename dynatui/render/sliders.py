"""The knobs panel: sliders, what limits the trees, reasons of the history rule, and the effect of knob changes."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from decoder.analysis.paired import BLOCK, LOOKS, Verdict
from decoder.events import LOST, OTHER_LIMITS, Limit
from decoder.knobs import KNOB_DIGITS, KnobInfo, KnobName, bounds
from decoder.methods import SIDE_A, draws_alone
from decoder.methods.adaptive import AdaptiveTree
from dynatui.keymap import KEYMAP, Keymap
from dynatui.knobs import info, limit_name, preset_of, rules_in_force, sliders_of, turns
from dynatui.number_format import counted, nth, short
from dynatui.render.ink import (
    Ink,
    Row,
    Rows,
    Span,
    best,
    best_row,
    fit,
    fitting,
    framed,
    inside,
    joined,
    merged,
    share,
    width_of,
)
from dynatui.render.scene import Scene
from dynatui.render.words import (
    drawing_line,
    faster_preset,
    limited,
    moved_back,
    reason,
    sign,
    target,
    turned,
    versus,
    written,
)
from dynatui.state.ab_comparison import measured, side_a, with_run
from dynatui.state.lane import Change, LaneState
from dynatui.state.run_state import RunState
from dynatui.state.turn_effect import LABELS, ROUNDS, Consequence, Difference, consequence, signed

_BORDER = 3
_TAIL = 14
_FIGURE = 6
_LONG = 30
"""Least width of a slider that shows its meaning, in cells."""
_SHORT = 18
"""Least width of a slider that shows its keys, in cells."""


@dataclass(frozen=True)
class Track:
    """The track of a slider: a scale from `low` to `high`, in `cells` cells, the first of which is in column `x`."""

    x: int
    cells: int
    low: float
    high: float

    def cell(self, value: float) -> int:
        return round(share(value - self.low, self.high - self.low) * (self.cells - 1))

    def value_at(self, x: int, info: KnobInfo) -> float | None:
        """The value at column `x`, rounded to the knob's step; None outside the track."""
        if not self.x <= x < self.x + self.cells:
            return None
        exact = self.low + (self.high - self.low) * (x - self.x) / max(1, self.cells - 1)
        stepped = round(exact / info.step) * info.step if math.isfinite(exact) else self.low
        return round(min(self.high, max(self.low, stepped)), KNOB_DIGITS)

    def row(self, value: float, *, pending: float | None, start: float | None, ends: tuple[float, float]) -> Row:
        """The track: ● current value, ○ pending value, ┼ value at the start of the run, ─ between the bounds."""
        if self.cells < 1:
            return ()
        first, last = self.cell(ends[0]), self.cell(ends[1])
        within: Span = ("─", "bar")
        cells: list[Span] = [within if first <= place <= last else ("·", "frame") for place in range(self.cells)]
        if start is not None:
            cells[self.cell(start)] = ("┼", "dim")
        cells[self.cell(value)] = ("●", "strong")
        if pending is not None:
            cells[self.cell(pending)] = ("○", "warn")
        return merged(cells)


@dataclass(frozen=True)
class _Place:
    knob: KnobInfo
    value: float
    label: str
    keys: str
    track: Track
    width: int


@framed
def knobs(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    keys = f"turn them while it runs; {scene.keys.cap('drawer')} shows all"
    title = knobs_title(scene, "Knobs", keys, f" in the last {scene.state.lane.window} rounds", width - 2)
    return title, [_sliders(scene, width), *notes(scene, width, height - 1)]


def height_for(scene: Scene, width: int, most: int) -> int:
    """Height of the panel without empty rows, with at least one row for a note; at most `most`."""
    return min(most, _BORDER + max(1, len(notes(scene, width - 4, most))))


def notes(scene: Scene, width: int, room: int) -> Rows:
    """The last notes that fit; a note that the history rule has moved a knob back is never omitted."""
    lane = scene.state.lane
    of_rules = history_line(lane, width, scene.keys), drawing_line(scene, width)
    lines = [row for row in (*of_rules, consequence_line(scene, width), compared_line(scene, width)) if row]
    fixed = 1 if moved_back(lane) else 0
    first_of_rest = max(fixed, len(lines) - max(0, room - fixed))
    return [*lines[:fixed], *lines[first_of_rest:]]


def hit(scene: Scene, width: int, height: int, x: int, y: int) -> tuple[KnobName, float] | None:
    inner, room = inside((width, height))
    x, places = x - (width - inner) // 2, _places(scene, inner)
    if y != (height - room) // 2 or not places or not 0 <= x < inner:
        return None
    for place in places:
        value = place.track.value_at(x, place.knob)
        if value is not None:
            return place.knob.name, value
    history = scene.pending.get("history", scene.state.lane.history)
    at_tail = x >= sum(place.width for place in places)
    return ("history", 0.0 if history else 1.0) if at_tail and history is not None else None


def knobs_title(scene: Scene, subject: str, keys: str, when: str, width: int) -> Row:
    watched = scene.state.watched
    preset = preset_of(watched, scene.state.lane)
    owner = (f" of {watched}" if watched else "") + (f" (preset {preset})" if preset else "")
    faster = "".join(f" ({words})" for words in faster_preset(scene)[:1])
    name: Row = ((subject + owner + faster, "title"),)
    how, limits = "as recorded" if scene.replaying or scene.following else keys, limited(scene.state.lane)
    wordings = [f" ─ {limit}{when} ─ {how}" for limit in limits[:1]] + [f" ─ {limit}" for limit in limits]
    return (*name, (best(width - width_of(name), *wordings, f" ─ {how}"), "dim"))


def _places(scene: Scene, width: int) -> list[_Place]:
    sliders, rules = sliders_of(scene.state.watched), rules_in_force(scene.state)
    if rules is None:
        return []
    slider_cells = max(1, (width - _TAIL) // max(3, len(sliders)))
    places = []
    for number, knob in enumerate(sliders):
        label = f"{knob.symbol} {knob.brief} " if slider_cells >= _LONG + 2 else f"{knob.symbol} "
        keys = f"{' '.join(map(scene.keys.cap, turns(knob)))} " if slider_cells >= _SHORT else ""
        low, high = (0.0, 1.0) if knob.kind == "probability" else bounds(rules, knob.name)
        before = len(label) + len(keys)
        track = Track(number * slider_cells + before, max(0, slider_cells - 2 - before - _FIGURE), low, high)
        places.append(_Place(knob, scene.state.lane.in_force.get(knob.name, 0.0), label, keys, track, slider_cells))
    return places


def _sliders(scene: Scene, width: int) -> Row:
    lane, places = scene.state.lane, _places(scene, width)
    if not scene.state.watched:
        return (("knob keys work already: turns take effect from the first round on", "dim"),)
    if not places:
        return ((f"{scene.state.watched} has no knobs; {scene.keys.cap('watch(1)')} watches another method", "dim"),)
    row: Row = ()
    for place in places:
        pending, ends = scene.pending.get(place.knob.name), (place.track.low, place.track.high)
        figure = f" {_written(place.knob, place.value)}" if pending is None else f" →{_written(place.knob, pending)}"
        ink: Ink = "strong" if pending is None else "warn"
        track = place.track.row(place.value, pending=pending, start=None, ends=ends)
        slider: Row = ((place.label, "plain"), (place.keys, "key"), *track, (figure, ink))
        row = (*row, *fit(slider, place.width))
    if lane.history is None:
        return row
    pending = scene.pending.get("history")
    history = lane.history if pending is None else bool(pending)
    arrow, ink = ("", "good") if pending is None else ("→", "warn")
    state = f"{arrow}{'on' if history else 'off'}"
    return (*row, ("history ", "plain"), (f"{scene.keys.cap('history')} ", "key"), (state, ink))


def _written(knob: KnobInfo, value: float) -> str:
    return written(knob, value) if knob.integer else short(value)


def history_line(lane: LaneState, width: int, keys: Keymap = KEYMAP) -> Row:
    if lane.history is None:
        return ()
    if not lane.history:
        return (("history is off: D0 and τh keep your values", "dim"),)
    back = moved_back(lane)
    if back is not None:
        return _moved_back(back, width, keys.cap("hold"))
    if len(lane.ruled) < lane.window:
        return ((f"history waits for the first {lane.window} rounds that draft: {len(lane.ruled)} so far", "dim"),)
    last = next((change for change in reversed(lane.changes) if not change.by_user), None)
    if last is None:
        long = f"history: depth acceptance over the last {lane.window} rounds {_direction(lane)}"
        return ((best(width, long, f"history: depth acc., last {lane.window}, {_direction(lane)}"), "plain"),)
    change: Row = (("history: ", "plain"), (turned(last), "strong"), (f": {reason(last, lane)}", "plain"))
    since = f" (round {nth(last.round)}); now {_direction(lane)}"
    return best_row(width, (*change, (since, "dim")), change)


def _moved_back(change: Change, width: int, key: str) -> Row:
    """Message that the history rule moves a knob back, and the key that keeps the knob at the chosen value."""
    knob = info(change.name)
    set_value, now = written(knob, change.old), written(knob, change.new)
    long = f"history moves {knob.symbol} back: you set {set_value}, now {now}"
    text = best(width - len(f"  {key} holds {set_value}"), long, f"{knob.symbol} is {now}")
    return ((f"{text}  ", "warn"), (key, "key"), (f" holds {set_value}", "plain"))


_STEPS = {"=": "holds", ">": "D0 up, τh down", "<": "D0 down, τh up"}
_VERDICTS: dict[Verdict, str] = {
    "faster": "B is faster",
    "slower": "B is slower",
    "unclear": "no clear difference so far",
    "machine busy": "machine busy: no verdict",
}


def compared_line(scene: Scene, width: int) -> Row:
    """The latest verdict on the two settings of the watched method; empty unless the run compares settings."""
    state, method = scene.state, scene.state.watched.removesuffix(SIDE_A)
    if side_a(state, method) is None:
        return ()
    pairs = with_run(scene.pairs, state)
    now = measured(pairs, [pair for pair in pairs if pair.b.method == method][-1])
    unit = "text" if state.race.sampled and draws_alone(method) else "block"
    head: Row = (("A/B ", "title"),)
    if now.pair.a == now.pair.b:
        head = (*head, ("A and B are equal: turn a knob of B. ", "plain"))
    if (found := now.comparison) is None:
        brief, size = f"no verdict before {LOOKS[0]} {unit}s", "" if unit == "text" else f" of {BLOCK} tokens"
        wordings = f"{brief}{size} on both sides: {now.blocks} so far", f"{brief}: {now.blocks} so far"
        return (*head, (best(width - width_of(head), *wordings), "dim"))
    rate, following = found.rate, next((look for look in LOOKS if look > found.blocks), None)
    parts = [
        f"  {short(rate.value)} ({short(rate.low)} to {short(rate.high)}) times A's tokens/s",
        f"  L-bar {short(found.b.tokens / found.b.rounds)}, A {short(found.a.tokens / found.a.rounds)}",
        f"  {counted(found.blocks, unit)}{f', next verdict at {following}' if following else ''}",
    ]
    return fitting([(*head, (_VERDICTS[found.verdict], "strong")), *(((part, "dim"),) for part in parts)], width)


def _direction(lane: LaneState) -> str:
    mean, aim = lane.ruled_acceptance or 0.0, target(lane)
    return f"{versus(mean, aim)}: {_STEPS[sign(mean, aim)]}"


_MOST_KNOBS = 2
_SAME = 0.05
"""Largest relative difference at which two mean tree sizes count as equal."""
_BREADTH: dict[KnobName, tuple[KnobName, KnobName]] = {"tau_h": ("b_min", "b_mid"), "tau_l": ("b_mid", "b_max")}
"""For each threshold, the knobs for the number of children of nodes with confidence above it and below it."""
_BOUNDS: frozenset[Limit] = OTHER_LIMITS | {"n_max"}
"""Limits of the size of a whole tree, and so of its breadth; limits outside this set only end single paths."""


def consequence_line(scene: Scene, width: int) -> Row:
    effect = consequence(scene.state.lane)
    if effect is None:
        return ()
    parts = _parts(scene, effect)
    rows = [
        [*parts, *(_difference(each, interval=place < intervals) for place, each in enumerate(effect.differences))]
        for intervals in (2, 1, 0)
    ]
    rows[0].append(_counted(effect))
    return fitting(next((row for row in rows if width_of(joined(row, ())) <= width), rows[-1]), width)


def _parts(scene: Scene, effect: Consequence) -> list[Row]:
    knobs = [f"{info(mark.name).symbol} {' → '.join(_ends(mark.name, mark.old, mark.new))}" for mark in effect.marks]
    head = ", ".join(knobs) if len(knobs) <= _MOST_KNOBS else f"{len(knobs)} knobs turned"
    parts: list[Row] = [((head, "title"),)]
    if (nodes := effect.nodes) and any(nodes):
        means = " → ".join(short(mean, 1).removesuffix(".0") for mean in nodes)
        parts.append(((": ", "title"), (f"nodes {means}", "plain")))
    hiding = filter(None, (_rule_hiding(scene.state, mark, effect) for mark in effect.marks))
    for rule, key in islice(hiding, 1):
        parts.append(((", ", "plain"), (rule, "warn"), *_freeing(scene, key)))
    return parts


def _ends(name: KnobName, *values: float) -> Iterator[str]:
    return (written(info(name), value) for value in values)


def _difference(difference: Difference, *, interval: bool) -> Row:
    """A difference as text: L-bar +0.40 (+0.05 to +0.75), or tokens/s -20 % (-31 to -9 %)."""
    share = difference.figure == "tokens_per_second" and difference.a > 0
    factor, digits, unit = (100 / difference.a, 0, " %") if share else (1.0, 2, "")
    bounds = difference.difference, difference.low, difference.high
    value, low, high = (signed(factor * bound, digits) for bound in bounds)
    ink: Ink = "strong" if difference.clear else "plain"
    reach: Row = ((f" ({low} to {high}{unit})", "dim"),) if interval else ()
    return ((", ", "plain"), (f"{LABELS[difference.figure]} {value}{unit}", ink), *reach)


def _counted(effect: Consequence) -> Row:
    if not effect.complete:
        counts = f"{len(effect.after)} of {ROUNDS} rounds"
    elif len(effect.before) < ROUNDS:
        counts = f"only {len(effect.before)} rounds before the turn: no comparison"
    else:
        counts = f"{ROUNDS} rounds each"
    return ((f" ({counts})", "dim"),)


def _freeing(scene: Scene, key: KnobName | Limit) -> Row:
    """The key against a rule that hides a knob's effect; empty where nothing can be turned."""
    if scene.replaying or scene.following or key == LOST:
        return ()
    others = {"history": ("history", "frees it"), "cost": ("watch(1)", "watches a method without it")}
    others |= dict.fromkeys(OTHER_LIMITS - {"cost"}, ("prompt(1)", "goes to the next prompt"))
    action, effect_text = others.get(key, ("drawer", "opens its slider"))
    return ((": ", "warn"), (scene.keys.cap(action), "key"), (f" {effect_text}", "plain"))


def _rule_hiding(state: RunState, mark: Change, effect: Consequence) -> tuple[str, KnobName | Limit] | None:
    """The rule, in words, that prevents the effect of a turned knob, and the knob or limit to change instead."""
    name, rules = mark.name, rules_in_force(state)
    now = getattr(effect.rounds[-1].knobs, name, None) if effect.rounds else None
    if state.lane.history and now is not None and len({*_ends(name, mark.new, now)}) > 1:
        return f"history moves {info(name).symbol}", "history"
    if isinstance(rules, AdaptiveTree):
        few, many = _BREADTH.get(name, ("b_min", "b_min"))
        if few != many and rules.knob(few) == rules.knob(many):
            return f"{info(few).symbol} = {info(many).symbol} hides it", many
        if name == "d0" and rules.rho_deep <= max(rules.rho_stop, rules.tau):
            return "rho_deep hides it", "rho_deep"
    limit = _ending(name, effect)
    if limit and rules is not None and rules.has(name) and info(name).kind != "switch":
        return f"{limit_name(limit)} hides it", limit
    return None


def _ending(name: KnobName, effect: Consequence) -> Limit | None:
    """The limit that stopped at least half of the trees; None if it is the turned knob, or if the tree size changed."""
    limits = Counter(event.limited_by for event in effect.rounds if event.limited_by)
    if not (effect.complete and effect.nodes and limits):
        return None
    (limit, count), (before, after) = limits.most_common(1)[0], effect.nodes
    if limit == name or 2 * count < ROUNDS or abs(after - before) > _SAME * max(before, after):
        return None
    return limit if name not in _BREADTH or limit in _BOUNDS else None

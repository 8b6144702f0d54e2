"""The line that tells what the last turn of knobs has brought, and which other rule hides a knob.

Knows no panel: whoever has a row for it says how wide that is.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from decoder.events import OTHER_LIMITS, Limit
from decoder.knobs import KnobName
from decoder.methods.adaptive import AdaptiveTree
from dynatui.knobs import info, limit_name, rules_in_force, turns
from dynatui.number_format import short
from dynatui.render.ink import Ink, Row, fitting, width_of
from dynatui.render.scene import Scene
from dynatui.render.words import written
from dynatui.state.ab_comparison import LABELS, Difference, signed
from dynatui.state.consequence import ROUNDS, Consequence, consequence
from dynatui.state.lane import LaneState
from dynatui.state.run_state import RunState

_MOST_KNOBS = 2
"""So many turned knobs are told by their values."""
_SAME = 0.05
"""Trees have the same size where the means differ by this share at most."""
_TOLD = ("tokens_per_round", "tokens_per_second")
_BREADTH: dict[KnobName, tuple[KnobName, KnobName]] = {"tau_h": ("b_min", "b_mid"), "tau_l": ("b_mid", "b_max")}
"""The numbers of guesses that a threshold stands between."""
_BOUNDS: frozenset[Limit] = OTHER_LIMITS | {"n_max"}
"""Limits on whole trees, breadth included; the others only end paths."""


def consequence_line(scene: Scene, width: int) -> Row:
    """The knobs that were turned last, how trees, L-bar and speed differ since, and what hides a knob."""
    found = consequence(scene.state.lane)
    if found is None:
        return ()
    parts, counted = _parts(scene, found), _counted(found)
    differences = [one for one in found.differences if one.figure in _TOLD]
    rows = [[*parts, *_differences(differences, intervals), counted] for intervals in range(len(_TOLD), -1, -1)]
    rows.insert(-1, [*parts, *_differences(differences, 1)])
    row = next((row for row in rows if sum(map(width_of, row)) <= width), rows[-1])
    return fitting(row, width)


def hidden_by(state: RunState, found: Consequence) -> tuple[str, KnobName | Limit] | None:
    """Of the turned knobs the first that another rule hides: the rule in words, and the knob or limit that frees it."""
    return next((rule for mark in found.marks for rule in _rules_hiding(state, mark.name, found)), None)


def _parts(scene: Scene, found: Consequence) -> list[Row]:
    """What was turned, how large the trees were and are, and what hides it."""
    knobs = [f"{info(mark.name).symbol} {' → '.join(_ends(mark.name, mark.old, mark.new))}" for mark in found.marks]
    head = ", ".join(knobs) if len(knobs) <= _MOST_KNOBS else f"{len(knobs)} knobs turned"
    told: list[Row] = [((head, "title"),)]
    if (nodes := found.nodes) and any(nodes):
        told.append(((": ", "title"), (f"nodes {' → '.join(map(_mean, nodes))}", "plain")))
    if hiding := hidden_by(scene.state, found):
        rule, key = hiding
        told.append(((", ", "plain"), (rule, "warn"), *_freeing(scene, key)))
    return told


def _ends(name: KnobName, *values: float) -> Iterator[str]:
    return (written(info(name), value) for value in values)


def _mean(nodes: float) -> str:
    return short(nodes, 1).removesuffix(".0")


def _differences(found: Sequence[Difference], intervals: int) -> list[Row]:
    """So many of them with their intervals."""
    return [((", ", "plain"), *_difference(one, interval=place < intervals)) for place, one in enumerate(found)]


def _difference(found: Difference, *, interval: bool) -> Row:
    """L-bar +.40 (+.05 to +.75), or tokens/s -20 % (-31 to -9 %)."""
    share = found.figure == "tokens_per_second" and found.a > 0
    factor, digits, unit = (100 / found.a, 0, " %") if share else (1.0, 2, "")
    value, low, high = (signed(factor * one, digits) for one in (found.difference, found.low, found.high))
    ink: Ink = "strong" if found.clear else "plain"
    reach: Row = ((f" ({low} to {high}{unit})", "dim"),) if interval else ()
    return ((f"{LABELS[found.figure]} {value}{unit}", ink), *reach)


def _counted(found: Consequence) -> Row:
    each = (
        f"{ROUNDS} rounds each" if len(found.before) == ROUNDS else f"{len(found.before)} rounds before, {ROUNDS} after"
    )
    return ((f" ({each if found.complete else f'{len(found.after)} of {ROUNDS} rounds'})", "dim"),)


def _freeing(scene: Scene, key: KnobName | Limit) -> Row:
    """The key that takes away what hides a knob; nothing where what is shown is decoded elsewhere, or was."""
    if scene.replaying or scene.following:
        return ()
    actions: tuple[str, ...]
    if key == "history":
        actions, does = ("history",), "frees it"
    elif key == "cost":
        actions, does = ("watch(1)",), "watches a method without it"
    elif key in OTHER_LIMITS:
        actions, does = ("prompt(1)",), "goes to the next prompt"
    elif info(key).keys:
        actions, does = turns(info(key)), "turn it"
    else:
        actions, does = ("drawer",), "opens its slider"
    return ((": ", "warn"), (" ".join(map(scene.keys.cap, actions)), "key"), (f" {does}", "plain"))


def _rules_hiding(state: RunState, name: KnobName, found: Consequence) -> Iterator[tuple[str, KnobName | Limit]]:
    symbol, rules = info(name).symbol, rules_in_force(state)
    if _moved(state.lane, name, found):
        yield f"history moves {symbol}", "history"
    if isinstance(rules, AdaptiveTree):
        if name in _BREADTH and rules.knob(_BREADTH[name][0]) == rules.knob(_BREADTH[name][1]):
            few, many = (info(each).symbol for each in _BREADTH[name])
            yield f"{few} = {many} hides it", _BREADTH[name][1]
        if name == "d0" and rules.rho_deep <= max(rules.rho_stop, rules.tau):
            yield "rho_deep hides it", "rho_deep"
    limit = _ending(name, found)
    if limit and rules is not None and rules.has(name) and info(name).kind != "switch":
        yield f"{limit_name(limit)} hides it", limit


def _moved(lane: LaneState, name: KnobName, found: Consequence) -> bool:
    """Whether history has moved a knob on from where it was turned to, in the rounds that are told of."""
    turned = next(mark.new for mark in found.marks if mark.name == name)
    last = found.rounds[-1].knobs if found.rounds else None
    now = getattr(last, name, None)
    return bool(lane.history) and now is not None and len({*_ends(name, turned, now)}) > 1


def _ending(name: KnobName, found: Consequence) -> Limit | None:
    """What ended most trees, where that is another rule and trees stay as large as they were; None elsewhere."""
    limits = Counter(event.limited_by for event in found.rounds if event.limited_by)
    if not (found.complete and found.nodes and limits):
        return None
    (limit, count), (before, after) = limits.most_common(1)[0], found.nodes
    if limit == name or 2 * count < ROUNDS or abs(after - before) > _SAME * max(before, after):
        return None
    return limit if name not in _BREADTH or limit in _BOUNDS else None

"""One line on the effect of the last knob changes, and on a growth rule that prevents this effect."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from decoder.events import LOST, OTHER_LIMITS, Limit
from decoder.knobs import KnobName
from decoder.methods.adaptive import AdaptiveTree
from dynatui.knobs import info, limit_name, rules_in_force
from dynatui.number_format import short
from dynatui.render.ink import Ink, Row, fitting, joined, width_of
from dynatui.render.scene import Scene
from dynatui.render.words import written
from dynatui.state.lane import Change
from dynatui.state.run_state import RunState
from dynatui.state.turn_effect import LABELS, ROUNDS, Consequence, Difference, consequence, signed

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

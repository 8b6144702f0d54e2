"""Wordings that several panels share: knobs, limits, comparison with ar, sampling, sampled trees, the remedy."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from rich.cells import cell_len

from decoder.analysis.bottleneck import Remedy, of_method, remedy_of
from decoder.analysis.metrics import differs_by_design
from decoder.analysis.what_if import Grid, Place, WhatIf
from decoder.events import Figures, Limit, Round
from decoder.knobs import KnobInfo, KnobName
from decoder.methods import draws_alone
from decoder.methods.delayed import Delayed
from decoder.methods.dynatree import shipped_preset
from decoder.verify.names import COUPLED, Drafting
from dynatui.knobs import info, is_demo, limit_name, rules_in_force
from dynatui.number_format import counted, percent, short
from dynatui.render.ink import Row, best, column, width_of
from dynatui.render.scene import Scene
from dynatui.result import BY_DESIGN
from dynatui.state.lane import Change, LaneState
from dynatui.state.run_state import RunState

TARGET = 0.7
"""Depth acceptance that the history rule aims at if the run gives no target."""
WHY_ALONE = "at T above 0 it samples with its own noise, so its text differs and is not compared with that of ar"
WHY_BY_DESIGN = "its text differs from that of ar by design"
_LARGEST = 1e6
_LEAST_REASON = 8
"""Least width in cells of the reason in a message; if fewer cells are free, only the remedy is shown."""


def turned(change: Change) -> str:
    """A change, such as τh 0.60 → 0.65."""
    knob = info(change.name)
    return f"{knob.symbol} {written(knob, change.old)} → {written(knob, change.new)}"


def written(knob: KnobInfo, value: float) -> str:
    """The value as text; very large values, which recordings may contain, are shortened."""
    return knob.written(value) if abs(value) < _LARGEST else short(value)


def reason(change: Change, lane: LaneState) -> str:
    """Reason of a change, such as "depth acceptance 0.78 > 0.70 over 10 rounds"; empty for a change by the user."""
    if change.by_user or change.acceptance is None:
        return ""
    rounds = min(lane.window, max(1, change.round))
    return f"depth acceptance {versus(change.acceptance, target(lane))} over {rounds} rounds"


def versus(mean: float, aim: float) -> str:
    return f"{short(mean)} {sign(mean, aim)} {short(aim)}"


def target(lane: LaneState) -> float:
    return lane.parameter("target_acceptance", TARGET)


def sign(mean: float, aim: float) -> str:
    """Sign between a mean and its target: >, < or =; mean and target count as equal if they agree to two decimals."""
    rounded_mean, rounded_aim = round(mean, 2), round(aim, 2)
    return "=" if rounded_mean == rounded_aim else ">" if mean > aim else "<"


def limited(lane: LaneState) -> tuple[str, ...]:
    """Limits of the last rounds, each with its share of the rounds with a known limit; two wordings, or empty."""
    known: list[Limit] = [limit for limit in lane.limits if limit is not None]
    shares = [f"{limit_name(limit)} {100 * count / len(known):.0f} %" for limit, count in Counter(known).most_common()]
    return (f"limited by {', '.join(shares)}", f"limited by {shares[0]}") if shares else ()


def moved_back(lane: LaneState) -> Change | None:
    """Change from the user's value of a knob to the value to which the history rule has moved it back, if it has."""
    for name in ("d0", "tau_h"):
        changes = [change for change in lane.changes if change.name == name]
        by_user = [place for place, change in enumerate(changes) if change.by_user]
        if not lane.history or not by_user or changes[-1].by_user:
            continue
        turn, last = changes[by_user[-1]], changes[-1]
        if (last.new - turn.new) * (turn.old - turn.new) > 0:
            return replace(last, old=turn.new)
    return None


def is_alone(state: RunState, method: str) -> bool:
    """Whether the text is not compared with that of ar, because the method samples with its own noise."""
    return state.race.sampled and draws_alone(method) and "ar" in state.lanes


def tie_words(figures: Figures, before: str = "") -> str:
    """Whether the difference from ar is by design or a near tie; empty if unknown."""
    if differs_by_design(figures):
        return f"{before}{BY_DESIGN}"
    return "" if figures.near_tie is None else f"{before}{'' if figures.near_tie else 'not '}a near tie"


def sampling_words(state: RunState, pending: Mapping[KnobName, float] | None = None) -> tuple[str, ...]:
    run, now, ahead = state.run, state.lane.settings, pending or {}
    if run is None or not (now.get("temperature") or ahead.get("temperature")):
        return ("greedy",)

    def setting(name: KnobName) -> str:
        return f"{info(name).symbol} {_turning(name, state, ahead)}"

    top_k = (f"top-k {run.top_k}",) if run.top_k else ()
    top_p = (setting("top_p"),) if now["top_p"] != 1 or "top_p" in ahead else ()
    return setting("temperature"), *top_k, *top_p, f"seed {run.seed}"


def note_within(note: str, width: int) -> str:
    """The note in at most `width` cells; the reason is cut before the remedy, which follows the last semicolon."""
    reason, separator, remedy = note.rpartition("; ")
    left = width - cell_len(separator + remedy)
    if cell_len(note) <= width:
        return note
    return column(reason, left) + separator + remedy if reason and left >= _LEAST_REASON else column(remedy, width)


def remedy(scene: Scene) -> Remedy | None:
    estimate, state = scene.whatif, scene.state
    if estimate is not None and (knobs := faster_knobs(estimate)):
        values, gain = knobs
        return Remedy(f"{values}, {gain} faster by estimate", values)
    settled = estimate is not None and estimate.here.rate is not None and estimate.here.rate_exact
    return remedy_of(of_method(state.race, state.watched), settled=settled)


def faster_knobs(estimate: WhatIf) -> tuple[str, str] | None:
    """The fastest values in words, and their gain; None if no values are faster than the present ones."""
    place, here = estimate.faster(), estimate.here.rate
    if place is None or here is None:
        return None
    least = "" if place.cell.rate_exact else "at least "
    return values_of(place), f"{least}{percent((place.cell.rate or here) / here - 1)}"


def values_of(place: Place) -> str:
    """Knob values of a cell, such as τh 0.70 with D0 5."""
    down, across = info(place.grid.down), info(place.grid.across)
    value = place.grid.columns[place.column]
    return f"{down.symbol} {row_value(place.grid, place.row)} with {across.symbol} {value:.0f}"


def row_value(grid: Grid, row: int) -> str:
    return short(grid.rows[row], 0 if info(grid.down).integer else 2)


def drawing(state: RunState) -> Delayed | None:
    rules = rules_in_force(state)
    return rules if isinstance(rules, Delayed) and rules.draws else None


def shape_of(state: RunState) -> tuple[int, int, int] | None:
    """(K, L1, L2) of the watched method's trees: the knobs' values, or the selector's choice in the last round."""
    rules, newest = drawing(state), state.lane.newest
    if rules is None:
        return None
    if rules.drafting == Drafting.SELECTOR:
        return newest.shape if newest else None
    return rules.shape.k, rules.shape.l1, rules.shape.l2


def shape_written(shape: tuple[int, int, int]) -> str:
    return f"({', '.join(map(str, shape))})"


def shape_words(shape: tuple[int, int, int]) -> str:
    k, l1, l2 = shape
    if k <= 1 or l2 == 0:
        return f"one path of {counted(l1 + l2, 'draw')}"
    rollouts = f"{k} paths of {counted(l2, 'draw')}"
    return f"{rollouts} from the root" if l1 == 0 else f"a path of {counted(l1, 'draw')}, then {rollouts} from its end"


def shape_sentence(state: RunState, event: Round) -> str:
    """Shape of a round's sampled tree, with an explanation; empty if the tree has no shape."""
    if event.shape is None:
        return ""
    place = state.lane.setting("drafting", event.round)
    chosen = place is not None and written(info("drafting"), place) == Drafting.SELECTOR
    return f"{'the selector chose ' if chosen else ''}{shape_written(event.shape)}: {shape_words(event.shape)}"


def drawing_words(state: RunState, pending: Mapping[KnobName, float] | None = None) -> tuple[str, ...]:
    """Verifier, drafting and shape of sampled trees, in wordings, the longest first. Without sampled trees: only a
    verifier other than the default.
    """
    rules, shape = drawing(state), shape_of(state)
    if rules is None:
        run = state.run
        return (run.verifier,) if run and run.drafting == Drafting.TREE and run.verifier != COUPLED else ()
    verifier, drafting = (_turning(name, state, pending or {}) for name in ("verifier", "drafting"))
    return f"{verifier}, {drafting}{f' {shape_written(shape)}' if shape else ''}", verifier


def drawing_line(scene: Scene, width: int) -> Row:
    rules, shape = drawing(scene.state), shape_of(scene.state)
    if rules is None:
        return ()
    row: Row = ()
    for name in ("verifier", "drafting"):
        named = _turning(name, scene.state, scene.pending)
        row = (*row, (f"{name} ", "plain"), (f"{scene.keys.cap(f'cycle({name!r})')} ", "key"))
        row = (*row, (named, "warn" if name in scene.pending else "strong"), ("  ", "plain"))
    return (*row, (best(max(0, width - width_of(row)), shape_words(shape) if shape else "", ""), "dim"))


def _turning(name: KnobName, state: RunState, pending: Mapping[KnobName, float]) -> str:
    knob, now = info(name), state.lane.settings.get(name, 0.0)
    return f"{written(knob, now)}{f'→{written(knob, pending[name])}' if name in pending else ''}"


def faster_preset(scene: Scene) -> tuple[str, ...]:
    """Wordings, the longest first, on the key that replaces the demo's large trees; empty without the demo preset."""
    state = scene.state
    if scene.replaying or scene.following or not is_demo(state.watched, state.lane):
        return ()
    key, usual = scene.keys.cap("preset"), shipped_preset(state.lane.settings.get("temperature", 0.0))
    return f"{key}: preset {usual}, smaller trees and faster", f"{key}: faster, smaller trees"

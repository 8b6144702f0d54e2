"""The log: knob changes with cause and effect, and other events of the run, the newest last.

Knob changes by the user that share a mark on the curves also share a line of the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from decoder.analysis.metrics import differs_by_design
from dynatui.clean import clean_line
from dynatui.keymap import KEYMAP, Keymap
from dynatui.knobs import info
from dynatui.number_format import counted, nth, short
from dynatui.render.ink import Ink, Row, Rows, column, framed, titled
from dynatui.render.scene import Scene
from dynatui.render.words import moved_back, reasons, tie_words, turned, written
from dynatui.state.lane import Change, LaneState
from dynatui.state.run_state import ChangeEffect, RunState, outcomes
from dynatui.state.session_log import OPENING
from dynatui.state.tokens import entry_of

Reason: TypeAlias = Literal["length", "eos", "stopped", "error"]
_WHEN, _WHEN_BRIEF, _WHO = 15, 8, 10
_LONGEST = 500
"""Maximum number of characters that are shown of an error message."""
_NARROW = 44
"""Below this width in cells, a line omits the word "round"."""
_ENDS: dict[Reason, str] = {
    "length": "done: as many tokens as asked for",
    "eos": "done: the text ended",
    "stopped": "stopped",
    "error": "broke off",
}


@dataclass(frozen=True)
class Entry:
    rounds: tuple[int, int] | None
    """First and last round of the watched method that the line covers; None for events before or after all rounds."""
    who: str
    what: str
    why: tuple[str, ...] = ()
    ink: Ink = "plain"


@framed
def log(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    lane, lines = scene.state.lane, entries(scene.state, scene.keys)
    turns = sum(turn.presses for turn in lane.turns) + sum(not change.by_user for change in lane.changes)
    title = titled("Log", f"{counted(turns, 'turn')} of knobs, and why")
    if below := min(scene.log_end, max(0, len(lines) - 1)):
        title = (*title, (f" ─ {below} more below", "warn"))
    if not lines:
        return title, [(("nothing yet: every turn of a knob is listed here, with its author and reason", "dim"),)]
    return title, [_row(entry, width) for entry in lines[max(0, len(lines) - below - height) : len(lines) - below]]


def entries(state: RunState, keys: Keymap = KEYMAP) -> list[Entry]:
    loaded = [Entry(None, "loading", step.step, ink="dim") for step in state.loading]
    run = state.race.run
    begun = [Entry(None, "prompt", run.start_words, ink="warn")] if run and run.start_words else []
    ended = [
        Entry(None, end.method, _ENDS[end.reason], (end.error or "",), "bad" if end.reason == "error" else "good")
        for end in state.ends.values()
    ]
    failed = [Entry(None, "error", state.failure.message, ink="bad")] if state.failure else []
    unsorted = [*_by_history(state.lane), *_by_hand(state.lane, keys), *_difference(state)]
    happened = sorted(unsorted, key=lambda entry: entry.rounds or (0, 0))
    past = list(_in_earlier_runs(state))
    present = [Entry(None, f"run {state.number}", "now", ink="dim")] if past else []
    return [*loaded, *past, *present, *begun, *happened, *ended, *failed]


def _by_history(lane: LaneState) -> Iterator[Entry]:
    """Successive changes of a knob in the same direction share one line, with the reason of the last change."""
    merged = list[tuple[int, Change]]()
    for change in lane.changes:
        if merged and _continues(change, merged[-1][1]):
            first, before = merged.pop()
            merged.append((first, replace(change, old=before.old)))
        else:
            merged.append((change.round, change))
    for first, change in merged:
        if not change.by_user:
            yield Entry((first, change.round), "history", turned(change), reasons(change, lane))


def _continues(change: Change, before: Change) -> bool:
    if change.by_user or before.by_user or change.name != before.name:
        return False
    return (change.new > change.old) == (before.new > before.old)


def _by_hand(lane: LaneState, keys: Keymap) -> Iterator[Entry]:
    for turn, outcome in outcomes(lane.turns, lane):
        yield _turned(turn, _moved_back(turn, lane, keys) or _effect(outcome, last=turn is lane.turns[-1]))


def _moved_back(turn: Change, lane: LaneState, keys: Keymap) -> tuple[str, ...]:
    moved = moved_back(lane)
    latest = next((other for other in reversed(lane.turns) if moved and other.name == moved.name), None)
    if moved is None or latest is not turn:
        return ()
    knob = info(turn.name)
    now = written(knob, moved.new)
    long = f"history moved it back to {now}; {keys.cap('hold')} holds {written(knob, moved.old)}"
    return long, f"history moved it to {now}"


def _effect(outcome: ChangeEffect, *, last: bool) -> tuple[str, ...]:
    before, after = outcome.before, outcome.after
    if after is None:
        return ("no round with this value yet",) if last else ()
    now = short(after.tokens_per_round)
    after_text = f"{now} in the {counted(after.rounds, 'round')} after"
    if before is None:
        return (f"L-bar {after_text}",)
    was = short(before.tokens_per_round)
    long = f"L-bar {was} in the {counted(before.rounds, 'round')} before, {after_text}"
    return long, f"L-bar {was} before, {now} after"


def _in_earlier_runs(state: RunState) -> Iterator[Entry]:
    for run in state.earlier:
        if turns := run.turns.get(state.watched):
            yield Entry(None, f"run {run.number}", clean_line(run.prompt[: 2 * OPENING])[:OPENING], ink="dim")
            yield from (_turned(turn, _effect(outcome, last=False)) for turn, outcome in turns)


def _turned(turn: Change, effect: tuple[str, ...]) -> Entry:
    presses = f" ({turn.presses} presses)" if turn.presses > 1 else ""
    return Entry((turn.first, turn.round), "you", f"{turned(turn)}{presses}", effect)


def _difference(state: RunState) -> list[Entry]:
    entry = state.figures().get(state.watched)
    if entry is None or entry.first_difference is None or state.watched == "ar":
        return []
    token = entry.first_difference
    place = entry_of(token, state.lane.tokens, state.lane.past)
    where = state.rounds if place is None else state.lane.tokens[place].round
    message = f"first difference from ar at token {token}"
    ink: Ink = "bad" if entry.near_tie is False else "plain" if differs_by_design(entry) else "warn"
    return [Entry((where, where), state.watched, message, (tie_words(entry),), ink)]


def _row(entry: Entry, width: int) -> Row:
    narrow = width < _NARROW
    cells = _WHEN_BRIEF if narrow else _WHEN
    when, who = column(_round_words(entry.rounds, brief=narrow), cells), column(entry.who, _WHO)
    text = " ".join(entry.what[:_LONGEST].split())
    room = width - cells - _WHO - len(text)
    why = next((f": {words}" for words in entry.why if words and len(words) + 2 <= room), "")
    if not why and entry.ink == "bad" and entry.why:
        why = f": {entry.why[0][:_LONGEST]}"
    ink: Ink = "strong" if entry.ink == "plain" else entry.ink
    return ((when, "dim"), (who, "key" if entry.who == "you" else "plain"), (text, ink), (why, "plain"))


def _round_words(rounds: tuple[int, int] | None, *, brief: bool) -> str:
    if rounds is None:
        return ""
    first, last = map(nth, rounds)
    word = "" if brief else "round " if first == last else "rounds "
    return f"{word}{first}" if first == last else f"{word}{first}-{last}"

"""The log: knob changes with cause and effect, and other events of the run, the newest last.

Knob changes by the user that share a mark on the curves also share a line of the log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, TypeAlias

from decoder.analysis.metrics import differs_by_design
from dynatui.clean import clean_line
from dynatui.number_format import counted, nth, short
from dynatui.render.ink import Ink, Row, Rows, Span, column, framed, titled
from dynatui.render.scene import Scene
from dynatui.render.words import reason, tie_words, turned
from dynatui.state.lane import Change, LaneState, Sample
from dynatui.state.run_state import RunState, outcomes
from dynatui.state.session_log import OPENING
from dynatui.state.tokens import entry_of

Reason: TypeAlias = Literal["length", "eos", "stopped", "error"]
_WHEN, _WHO = 8, 10
_LONGEST = 500
"""Maximum number of characters that are shown of an error message."""
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
    lane, lines = scene.state.lane, entries(scene.state)
    turns = sum(turn.presses for turn in lane.turns) + sum(not change.by_user for change in lane.changes)
    title = titled("Log", f"{counted(turns, 'turn')} of knobs by round, and why")
    if below := min(scene.log_end, max(0, len(lines) - 1)):
        title = (*title, (f" ─ {below} more below", "warn"))
    if not lines:
        return title, [(("nothing yet: every turn of a knob is listed here, with its author and reason", "dim"),)]
    return title, [_row(entry, width) for entry in lines[max(0, len(lines) - below - height) : len(lines) - below]]


def entries(state: RunState) -> list[Entry]:
    loaded = [Entry(None, "loading", step.step, ink="dim") for step in state.loading]
    run = state.race.run
    begun = [Entry(None, "prompt", run.start_words, ink="warn")] if run and run.start_words else []
    ended = [
        Entry(None, end.method, _ENDS[end.reason], (end.error or "",), "bad" if end.reason == "error" else "good")
        for end in state.ends.values()
    ]
    failed = [Entry(None, "error", state.failure.message, ink="bad")] if state.failure else []
    last = state.lane.turns[-1:]
    by_hand = [_turned(turn, _effect(*sides, last=turn in last)) for turn, *sides in outcomes(state.lane)]
    unsorted = [*_by_history(state.lane), *by_hand, *_difference(state)]
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
            yield Entry((first, change.round), "history", turned(change), (reason(change, lane),))


def _continues(change: Change, before: Change) -> bool:
    same = not change.by_user and not before.by_user and change.name == before.name
    return same and (change.new > change.old) == (before.new > before.old)


def _effect(before: Sequence[Sample], after: Sequence[Sample], *, last: bool) -> tuple[str, ...]:
    """L-bar on both sides of a knob change; empty if the next change came before any round."""
    if not after:
        return ("no round with this value yet",) if last else ()
    now, rounds = short(fmean(sample.tokens for sample in after)), counted(len(after), "round")
    if not before:
        return (f"L-bar {now} in the {rounds} after",)
    was = short(fmean(sample.tokens for sample in before))
    long = f"L-bar {was} in the {counted(len(before), 'round')} before, {now} in the {rounds} after"
    return long, f"L-bar {was} before, {now} after"


def _in_earlier_runs(state: RunState) -> Iterator[Entry]:
    for run in state.earlier:
        if turns := run.turns.get(state.watched):
            yield Entry(None, f"run {run.number}", clean_line(run.prompt[: 2 * OPENING])[:OPENING], ink="dim")
            yield from (_turned(turn, _effect(*sides, last=False)) for turn, *sides in turns)


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
    first, last = map(nth, entry.rounds or (-1, -1))
    when = "" if entry.rounds is None else f"{first}" if first == last else f"{first}-{last}"
    text = " ".join(entry.what[:_LONGEST].split())
    room = width - _WHEN - _WHO - len(text)
    why = next((f": {words}" for words in entry.why if words and len(words) + 2 <= room), "")
    if not why and entry.ink == "bad" and entry.why:
        why = f": {entry.why[0][:_LONGEST]}"
    who: Span = (column(entry.who, _WHO), "key" if entry.who == "you" else "plain")
    return ((column(when, _WHEN), "dim"), who, (text, "strong" if entry.ink == "plain" else entry.ink), (why, "plain"))

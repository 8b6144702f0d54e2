"""The log: who turned which knob and why, and what else happened to the run, in words, the newest last."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from decoder.analysis.metrics import differs_by_design
from dynatui.number_format import nth
from dynatui.render.ink import Ink, Row, Rows, column, frame, inside
from dynatui.render.scene import Scene
from dynatui.render.words import continues, joint, reasons, tie_words, turned
from dynatui.state.lane import Change, LaneState
from dynatui.state.run_state import RunState
from dynatui.state.tokens import entry_of

Reason: TypeAlias = Literal["length", "eos", "stopped", "error"]
_WHEN, _WHEN_BRIEF, _WHO = 15, 8, 10
_LONGEST = 500
"""Characters of an error; no row has room for more."""
_NARROW = 44
"""Cells under which a line leaves out the word round and cuts names."""
_ENDS: dict[Reason, str] = {
    "length": "done: as many tokens as asked for",
    "eos": "done: the text ended",
    "stopped": "stopped",
    "error": "broke off",
}


@dataclass(frozen=True)
class Entry:
    """One line of the log."""

    rounds: tuple[int, int] | None
    """First and last round of the watched method; None before the first and after the last."""
    who: str
    what: str
    why: tuple[str, ...] = ()
    """Wordings, the longest first."""
    ink: Ink = "plain"


def log(scene: Scene, width: int, height: int) -> Rows:
    """As many of the newest lines as there is room for."""
    inner, room = inside((width, height))
    lines = entries(scene.state)
    below = min(scene.log_end, max(0, len(lines) - 1))
    told = [_row(entry, inner) for entry in lines[: len(lines) - below]]
    if not told:
        told = [(("nothing yet: every turn of a knob is told here, with who did it and why", "dim"),)]
    turns = len(scene.state.lane.changes)
    title: Row = (("Log", "title"), (f" ─ {turns} {'turn' if turns == 1 else 'turns'} of knobs, and why", "dim"))
    if below:
        title = (*title, (f" ─ {below} more below", "warn"))
    return frame(title, told[-room:] if room else [], (width, height))


def entries(state: RunState) -> list[Entry]:
    """All that happened, the newest last."""
    loaded = [Entry(None, "loading", step.step, ink="dim") for step in state.loading]
    ended = [
        Entry(None, end.method, _ENDS[end.reason], (end.error or "",), "bad" if end.reason == "error" else "good")
        for end in state.ends.values()
    ]
    failed = [Entry(None, "error", state.failure.message, ink="bad")] if state.failure else []
    happened = sorted([*_changes(state.lane), *_difference(state)], key=lambda entry: entry.rounds or (0, 0))
    return [*loaded, *happened, *ended, *failed]


def _changes(lane: LaneState) -> list[Entry]:
    """The turns of knobs; history's small steps in one direction are told as one."""
    told = list[tuple[int, Change]]()
    for change in lane.changes:
        if told and continues(change, told[-1][1]):
            first, before = told.pop()
            told.append((first, joint(change, before)))
        else:
            told.append((change.mark.round, change))
    return [
        Entry((first, change.mark.round), "you" if change.by_user else "history", turned(change), reasons(change, lane))
        for first, change in told
    ]


def _difference(state: RunState) -> list[Entry]:
    """The first token that is not ar's."""
    entry = state.figures().get(state.watched)
    if entry is None or entry.first_difference is None or state.watched == "ar":
        return []
    token = entry.first_difference
    place = entry_of(token, state.lane.tokens, state.lane.past)
    where = state.rounds if place is None else state.lane.tokens[place].round
    what = f"first difference from ar at token {token}"
    ink: Ink = "bad" if entry.near_tie is False else "plain" if differs_by_design(entry) else "warn"
    return [Entry((where, where), state.watched, what, (tie_words(entry),), ink)]


def _row(entry: Entry, width: int) -> Row:
    narrow = width < _NARROW
    cells = _WHEN_BRIEF if narrow else _WHEN
    what: Ink = "strong" if entry.ink == "plain" else entry.ink
    head: Row = (
        (column(_when(entry.rounds, brief=narrow), cells), "dim"),
        (column(entry.who, _WHO), "key" if entry.who == "you" else "plain"),
    )
    told = " ".join(entry.what[:_LONGEST].split())
    room = width - cells - _WHO - len(told)
    why = next((f": {words}" for words in entry.why if words and len(words) + 2 <= room), "")
    if not why and entry.ink == "bad" and entry.why:
        why = f": {entry.why[0][:_LONGEST]}"
    return (*head, (told, what), (why, "plain"))


def _when(rounds: tuple[int, int] | None, *, brief: bool) -> str:
    if rounds is None:
        return ""
    first, last = map(nth, rounds)
    word = "" if brief else "round " if first == last else "rounds "
    return f"{word}{first}" if first == last else f"{word}{first}-{last}"

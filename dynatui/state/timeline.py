"""The state of a run at any of its rounds, and the user's viewpoint: the watched method and the shown round.

Every 64th state is stored (states share their parts); any other is computed from the stored state before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from decoder.events import End, Event, Knob, Round, Run, Start, Summary
from dynatui.clean import clean_line
from dynatui.state.run_state import Prompt, Record, RunState, apply

_EVERY = 64


class Timeline:
    def __init__(self, before: RunState | None = None) -> None:
        self.state = before or RunState()
        self._records: list[Record] = []
        self._snapshots = [self.state]
        """States before the first record and after every 64th record."""
        self._ends: dict[str, list[int]] = {}
        """Counts of records, by method: the count before the first round, then the count at the end of each round."""

    def __len__(self) -> int:
        return len(self._records)

    @property
    def before(self) -> RunState:
        return self._snapshots[0]

    @property
    def events(self) -> list[Event]:
        return run_so_far(self._records)

    def rounds(self, method: str) -> int:
        return len(self._ends.get(method, (0,))) - 1

    def take(self, record: Record) -> None:
        self.state = apply(self.state, record)
        if isinstance(record, Round):
            ends = self._ends.setdefault(clean_line(record.method), [len(self._records)])
            ends.append(len(self._records) + 1)
        self._records.append(record)
        if len(self._records) % _EVERY == 0:
            self._snapshots.append(self.state)

    def at(self, method: str, rounds: int) -> RunState:
        """The state right after round number `rounds` of a method; 0 is the state before its first round."""
        ends = self._ends.get(method, [len(self._records)])
        count = ends[min(max(0, rounds), len(ends) - 1)]
        if count == len(self._records):
            return self.state
        state = self._snapshots[count // _EVERY]
        for record in self._records[count - count % _EVERY : count]:
            state = apply(state, record)
        return state


def run_so_far(records: Sequence[object]) -> list[Event]:
    """Events of the newest run so far; empty before the first run."""
    begin = next((place for place in range(len(records) - 1, -1, -1) if isinstance(records[place], Run)), len(records))
    return [r for r in records[begin:] if isinstance(r, Run | Start | Round | Knob | End | Summary)]


@dataclass(frozen=True)
class TimelinePosition:
    round: int = 0
    rounds: int = 0
    """Number of known rounds of the watched method; for a recording, the number of recorded rounds."""
    seconds: float = 0.0
    live: bool = True
    played: int | None = None
    """Number of decoded or played rounds of the watched method; None stands for all known rounds."""

    @property
    def ahead(self) -> bool:
        return self.played is not None and self.round > self.played


class Viewpoint:
    """The user's view; while it does not follow decoding or playback, it stays on its run when the next run begins."""

    def __init__(self) -> None:
        self.work = Timeline()
        self._chosen = ""
        self._shown_run = self.work
        self._recorded: Sequence[Event] = ()
        self._foreseen = Timeline()
        """The recorded run that is being played: all events read so far, including those not yet played."""
        self._held_state: RunState | None = None
        """The shown state while the view does not follow decoding or playback."""
        self._newest_state: RunState | None = None
        """The newest state at the time when the view stopped following decoding; None for a recording."""

    @property
    def live(self) -> bool:
        return self._held_state is None

    @property
    def state(self) -> RunState:
        return self._watched(self.work.state if self._held_state is None else self._held_state)

    @property
    def whole(self) -> RunState:
        """The newest known state of the shown run, which may be later than the shown round."""
        if self._held_state is None:
            return self._watched(self._longest.state)
        return self._watched(self._newest_state or self._shown_run.state)

    @property
    def newest(self) -> RunState:
        """State of the run in progress, which may not be the shown run."""
        return self._watched(self.work.state)

    @property
    def shown(self) -> Timeline:
        return self.work if self._held_state is None else self._shown_run

    def foresee(self, run: Sequence[Event], prompt: Prompt, count: int) -> None:
        """Folds `count` more events of the recorded `run`, and always at least the events that were played."""
        if run is not self._recorded:
            before = self.work.before if self.work.events[:1] == [*run[:1]] else self.work.state
            self._recorded, self._foreseen = run, Timeline(RunState(prompt=prompt, race=before.race))
        self._read_on(max(len(self._foreseen) + count, len(self.work)))

    def take(self, record: Record) -> None:
        if isinstance(record, Run):
            self.work = Timeline(self.work.state)
        self.work.take(record)

    def choose(self, method: str) -> None:
        self._chosen = method

    def place(self, known_rounds: int = 0) -> TimelinePosition:
        """The shown position; `known_rounds` is the number of rounds in a recording, whether played or not."""
        state, newest = self.state, self.state.lane.newest
        rounds = max(self.shown.rounds(state.watched), known_rounds, state.rounds)
        of_this_run = self.live or self._shown_run in (self.work, self._foreseen)
        played = self.work.rounds(state.watched) if of_this_run else None
        return TimelinePosition(state.rounds, rounds, newest.t if newest else 0.0, self.live, played)

    def hold(self) -> None:
        if self._held_state is None:
            self._shown_run, self._held_state = self._longest, self.work.state
            self._newest_state = None if self._recorded else self.work.state

    def follow(self) -> None:
        self._held_state = None

    def look_at(self, rounds: int) -> None:
        """Fixes the view at the end of round `rounds` of the watched method, even if this round is not played yet."""
        self.hold()
        if self._shown_run is self._foreseen and rounds > self._shown_run.rounds(self.state.watched):
            self._read_on(len(self._recorded))
        self._held_state = self._shown_run.at(self.state.watched, rounds)
        if self._newest_state is not None and self._watched(self._newest_state).rounds < self.state.rounds:
            self._newest_state = self._held_state

    @property
    def _longest(self) -> Timeline:
        """The present run as far as it is known: a recording may have been read further than it was played."""
        return self._foreseen if self._recorded else self.work

    def _read_on(self, end: int) -> None:
        for event in self._recorded[len(self._foreseen) : end]:
            self._foreseen.take(event)

    def _watched(self, state: RunState) -> RunState:
        return state if state.chosen == self._chosen else structs.replace(state, chosen=self._chosen)

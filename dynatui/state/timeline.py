"""A run at any of its rounds, and what the user looks at: the watched method, and the newest round or an earlier one.

The screen can go back without the engine knowing: states share their parts, so every so many records one is kept, and
a place in between is folded anew from there. Knows no widget and no source.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from decoder.events import End, Event, Knob, Round, Run, Start, Summary
from dynatui.clean import clean_line
from dynatui.state.run_state import Record, RunState, apply

_EVERY = 64


class Timeline:
    """The records of one run, and the state after each round of each method."""

    def __init__(self, before: RunState | None = None) -> None:
        self.state = before or RunState()
        """After all records."""
        self._records: list[Record] = []
        self._kept = [self.state]
        """The state after every 64th record, the first after none."""
        self._ends: dict[str, list[int]] = {}
        """By method: how many records there were before its first round, and after each round."""

    @property
    def events(self) -> list[Event]:
        """What happened in the run so far, as a recording would hold it."""
        return run_so_far(self._records)

    def rounds(self, method: str) -> int:
        """Rounds of a method."""
        return len(self._ends.get(method, (0,))) - 1

    def take(self, record: Record) -> None:
        """Adds a record."""
        self.state = apply(self.state, record)
        if isinstance(record, Round):
            ends = self._ends.setdefault(clean_line(record.method), [len(self._records)])
            ends.append(len(self._records) + 1)
        self._records.append(record)
        if len(self._records) % _EVERY == 0:
            self._kept.append(self.state)

    def at(self, method: str, rounds: int) -> RunState:
        """The state right after so many rounds of a method."""
        ends = self._ends.get(method, [len(self._records)])
        count = ends[min(max(0, rounds), len(ends) - 1)]
        if count == len(self._records):
            return self.state
        state = self._kept[count // _EVERY]
        for record in self._records[count - count % _EVERY : count]:
            state = apply(state, record)
        return state


def run_so_far(records: Sequence[object]) -> list[Event]:
    """The events of the newest run among a source's records; none before the first run."""
    begin = next((place for place in range(len(records) - 1, -1, -1) if isinstance(records[place], Run)), len(records))
    return [r for r in records[begin:] if isinstance(r, Run | Start | Round | Knob | End | Summary)]


@dataclass(frozen=True)
class Place:
    """Where in the run the picture is."""

    round: int = 0
    """Rounds of the watched method that are shown."""
    rounds: int = 0
    """Rounds that there are; of a recording, all that it holds."""
    seconds: float = 0.0
    """Own decode time at that round."""
    live: bool = True


class Viewpoint:
    """The run at work, the run that is shown, which stays when the next begins, the place in it, the watched method."""

    def __init__(self) -> None:
        self.work = Timeline()
        self._chosen = ""
        self._shown = self.work
        self._held: RunState | None = None
        """What is shown while the view does not follow the work."""

    @property
    def live(self) -> bool:
        """Whether the picture follows the work."""
        return self._held is None

    @property
    def state(self) -> RunState:
        """What is shown."""
        return self._watched(self.work.state if self._held is None else self._held)

    @property
    def newest(self) -> RunState:
        """The work as it is now, whatever is shown."""
        return self._watched(self.work.state)

    @property
    def shown(self) -> Timeline:
        """The run that is shown."""
        return self.work if self._held is None else self._shown

    def take(self, record: Record) -> None:
        """Adds a record."""
        if isinstance(record, Run):
            self.work = Timeline(self.work.state)
        self.work.take(record)

    def choose(self, method: str) -> None:
        """Watches a method, at the place that is shown."""
        self._chosen = method

    def place(self, known_rounds: int = 0) -> Place:
        """Where the picture is; a recording may know of more rounds than were played."""
        state, newest = self.state, self.state.lane.newest
        rounds = max(self.shown.rounds(state.watched), known_rounds, state.rounds)
        return Place(state.rounds, rounds, newest.t if newest else 0.0, self.live)

    def hold(self) -> None:
        """Stops following the work."""
        if self._held is None:
            self._shown, self._held = self.work, self.work.state

    def follow(self) -> None:
        """Follows the work again."""
        self._held = None

    def look_at(self, rounds: int) -> None:
        """Stops after so many rounds of the watched method in the run that is shown."""
        self.hold()
        self._held = self._shown.at(self.state.watched, rounds)

    def _watched(self, state: RunState) -> RunState:
        return state if state.chosen == self._chosen else structs.replace(state, chosen=self._chosen)

"""A run as it is shown, at any of its rounds: the screen can go back without the engine knowing.

States share their parts, so every so many records one is kept, and a place in between is folded anew from there.
"""

from decoder.events import Event
from dynatui.fold.state import Record, RunState, apply
from dynatui.keep.recording import run_so_far

_EVERY = 64


class Timeline:
    """The records of one run, and the state after each round of the watched method."""

    def __init__(self, before: RunState | None = None) -> None:
        self.state = before or RunState()
        """After all records."""
        self._records: list[Record] = []
        self._kept = [self.state]
        """The state after every 64th record, the first after none."""
        self._ends: list[int] = [0]
        """How many records there were after so many rounds."""

    @property
    def rounds(self) -> int:
        """Rounds of the watched method."""
        return len(self._ends) - 1

    @property
    def events(self) -> list[Event]:
        """What happened in the run so far, as a recording would hold it."""
        return run_so_far(self._records)

    def take(self, record: Record) -> None:
        """Adds a record."""
        before = self.state.rounds
        self.state = apply(self.state, record)
        self._records.append(record)
        if len(self._records) % _EVERY == 0:
            self._kept.append(self.state)
        if self.state.rounds < before:
            self._ends = [len(self._records)]
        elif self.state.rounds > before:
            self._ends.append(len(self._records))
        elif self.state.rounds == 0:
            self._ends = [len(self._records)]

    def at(self, rounds: int) -> RunState:
        """The state right after so many rounds of the watched method."""
        count = self._ends[min(max(0, rounds), self.rounds)]
        if count == len(self._records):
            return self.state
        state = self._kept[count // _EVERY]
        for record in self._records[count - count % _EVERY : count]:
            state = apply(state, record)
        return state

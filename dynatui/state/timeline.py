"""A run as it is shown, at any of its rounds: the screen can go back without the engine knowing.

States share their parts, so every so many records one is kept, and a place in between is folded anew from there.
"""

from collections.abc import Sequence

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

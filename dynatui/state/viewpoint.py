"""What the user looks at: the watched method, and the newest round or an earlier one.

A run that is looked at stays, even when the next has begun. Knows no widget and no source.
"""

from dataclasses import dataclass

from msgspec import structs

from decoder.events import Run
from dynatui.state.run_state import Record, RunState
from dynatui.state.timeline import Timeline


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
    """Whether the picture follows the work."""


class Viewpoint:
    """The run that is at work, the run that is shown, the place in it, and the method that is watched."""

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

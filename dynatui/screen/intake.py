"""Takes in what the source has brought: every record goes to whoever must know of it, each exactly once.

Runs that are over are dropped, for a monitor may be left on for days; what they added up to stays. Knows no widget.
"""

from dataclasses import dataclass

from decoder.events import Knob, Round, Run, Summary
from dynatui.fold.gaze import Gaze
from dynatui.fold.results import Results, noted
from dynatui.fold.session_log import SessionLog
from dynatui.fold.state import Failure, Prompt
from dynatui.screen.desk import Desk
from dynatui.sources.source import Source


@dataclass(frozen=True)
class News:
    """What the app itself must act on."""

    failed: bool = False
    """Something went wrong that the user must see."""
    weighty: bool = False
    """More happened than rounds and turned knobs."""


class Intake:
    """Reads a source's records behind a cursor of its own."""

    def __init__(self, source: Source) -> None:
        self.gaze = Gaze()
        self.desk = Desk(source.controls) if source.controls else None
        self.session_log = SessionLog()
        self.results: Results = {}
        self._source = source
        self._cursor = 0

    def read(self) -> News:
        """Folds the records that are new."""
        records, failed, weighty = self._source.records, False, False
        while self._cursor < len(records):
            record = records[self._cursor]
            self._cursor += 1
            weighty |= not isinstance(record, Round | Knob)
            failed = isinstance(record, Failure) or (failed and not isinstance(record, Run))
            if isinstance(record, Prompt):
                self._note_result()
            elif isinstance(record, Run):
                del records[: self._cursor - 1]
                self._cursor = 1
            self.gaze.take(record)
            self.session_log = self.session_log.apply(record, self.gaze.work.state.race)
            if self.desk:
                self.desk.take(record)
            if isinstance(record, Summary):
                self._note_result()
        return News(failed, weighty)

    def _note_result(self) -> None:
        self.results = noted(self.results, self.gaze.work.state)

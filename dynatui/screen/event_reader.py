"""Reads new records of the source and passes each record to viewpoint, session log, knob editor and pins.

The viewpoint folds a record into the state of the run; session log and pins read that state. Records of earlier runs
are dropped, since a monitor may run for days; the session log keeps the totals of these runs. Knows no widget.
"""

from dataclasses import dataclass

from decoder.events import Knob, Round, Run
from dynatui.clean import clean_line
from dynatui.screen.knob_editor import KnobEditor
from dynatui.sources.source import Source
from dynatui.state.ab_comparison import Pin
from dynatui.state.run_state import Failure, Prompt
from dynatui.state.session_log import SessionLog
from dynatui.state.timeline import Viewpoint

_FORESEEN = 200
"""Largest number of events that one call of `read` reads ahead of a playback, so that a frame takes a short time."""


@dataclass(frozen=True)
class News:
    """Kinds of newly read records."""

    failed: bool = False
    any: bool = False
    important: bool = False
    """Records other than rounds and turns of knobs."""


class EventReader:
    def __init__(self, source: Source) -> None:
        self.viewpoint = Viewpoint()
        self.knob_editor = KnobEditor(source.controls) if source.controls else None
        self.session_log = SessionLog()
        self.pins: dict[str, Pin] = {}
        """Side A of the A/B comparison, by method."""
        self._source = source
        self._cursor = 0

    def read(self) -> News:
        records, any_new, failed, important = self._source.records, False, False, False
        while self._cursor < len(records):
            record = records[self._cursor]
            self._cursor += 1
            any_new = True
            important |= not isinstance(record, Round | Knob)
            failed = isinstance(record, Failure) or (failed and not isinstance(record, Run))
            if isinstance(record, Run):
                del records[: self._cursor - 1]
                self._cursor = 1
            elif isinstance(record, Knob) and record.source == "user":
                self._pin(clean_line(record.method))
            self.viewpoint.take(record)
            self.session_log = self.session_log.apply(record, self.viewpoint.work.state)
            if self.knob_editor:
                self.knob_editor.take(record)
        if playback := self._source.playback:
            self.viewpoint.foresee(playback.events, Prompt(playback.number + 1, playback.count), _FORESEEN)
        return News(failed, any_new, important)

    def _pin(self, method: str) -> None:
        """Pins the settings before a turn of a knob as side A; side B begins with the turn."""
        before = self.viewpoint.work.state
        pin = self.pins.get(method)
        self.pins[method] = pin.after_turn(before) if pin else Pin.of(before, method)

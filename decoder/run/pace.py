"""What the user does to the pace of a race: pauses, steps through stages, slow motion and stop; and the work that
methods do meanwhile.
"""

import time
from collections.abc import Sequence

from decoder.events import Round
from decoder.run.lane import Lane
from decoder.session.protocol import AtStage, Outcome
from decoder.session.steering import SlowMotion, Stage, StageName, Steering, hold, takes_step


class Pace:
    def __init__(self, steering: Steering, lanes: Sequence[Lane]) -> None:
        self._steering = steering
        self._lanes = lanes
        self._motion = SlowMotion(steering)

    def rest(self) -> None:
        """Waits while the run is paused between two rounds."""
        hold(self._steering, idle=self.prepare)

    def at_stage(self, lane: Lane) -> AtStage:
        """Callback that pauses a lane at each stage of a round while the user steps through it."""

        def paused_s(name: StageName, outcome: Outcome) -> float:
            if lane is not self._watched or not takes_step(self._steering):
                return 0.0
            since = time.perf_counter()
            hold(self._steering, Stage(name, lane.event(outcome)))
            return time.perf_counter() - since

        return paused_s

    def after(self, lane: Lane, decoded: Round | None) -> None:
        """Waits after a round, as steps and speed ask."""
        watched = self._watched
        if (lane is watched or watched.ended) and takes_step(self._steering):
            hold(self._steering, Stage("committed", decoded) if decoded and lane is watched else None)
        self._motion.after(lane.latest_s, self.prepare)

    def prepare(self) -> bool:
        """Lets one lane do a part of its work in advance, and tells the screen; whether any had such work."""
        self._steering.preparing = next(filter(None, (lane.prepare() for lane in self._lanes)), "")
        return bool(self._steering.preparing)

    def prepare_all(self) -> None:
        while not self._steering.stopped and self.prepare():
            pass

    def opens_next(self) -> bool:
        """Usually once all open lanes have decoded a round, so that the screen soon shows rounds; at once if the user
        steps through a method that is not open yet.
        """
        asked = self._steering.watched and self._steering.watched not in [lane.name for lane in self._lanes]
        stepped = bool(asked) and self._steering.paused and not self._steering.stopped
        return stepped or all(lane.rounds or lane.ended for lane in self._lanes)

    @property
    def _watched(self) -> Lane:
        """The first lane until the user chooses another method."""
        return next((lane for lane in self._lanes if lane.name == self._steering.watched), self._lanes[0])

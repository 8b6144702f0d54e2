"""Control of a race by the user: pauses, steps through stages, slow motion and stop, with the work that methods do
during pauses; and changes of temperature and top-p, which apply to the same positions of all texts.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from decoder.events import Knob, Round
from decoder.knobs import KnobName
from decoder.methods import require_knobs
from decoder.run.lane import Lane
from decoder.sampling.settings import SAMPLING, Schedule
from decoder.session.protocol import AtStage, Outcome
from decoder.session.steering import SlowMotion, Stage, StageName, Steering, Turn, applied, hold, takes_step


class Pace:
    def __init__(self, steering: Steering, lanes: Sequence[Lane]) -> None:
        self._steering = steering
        self._lanes = lanes
        self._motion = SlowMotion(steering)

    def rest(self) -> None:
        """Waits while the run is paused between two rounds."""
        hold(self._steering, idle=self.prepare)

    def at_stage(self, lane: Lane) -> AtStage:
        """Callback that pauses a lane at each stage of a round while the user steps through the round."""

        def paused_s(name: StageName, outcome: Outcome) -> float:
            if lane is not self._watched or not takes_step(self._steering):
                return 0.0
            since = time.perf_counter()
            hold(self._steering, Stage(name, lane.event(outcome)))
            return time.perf_counter() - since

        return paused_s

    def after(self, lane: Lane, decoded: Round | None) -> None:
        """Waits after a round if the user steps through the run or has lowered its speed."""
        watched = self._watched
        if (lane is watched or watched.ended) and takes_step(self._steering):
            hold(self._steering, Stage("committed", decoded) if decoded and lane is watched else None)
        self._motion.after(lane.latest_s, self.prepare)

    def prepare(self) -> bool:
        """Lets one lane work in advance, shows the progress, and returns whether any lane had such work."""
        self._steering.preparing = next(filter(None, (lane.prepare() for lane in self._lanes)), "")
        return bool(self._steering.preparing)

    def prepare_all(self) -> None:
        while not self._steering.stopped and self.prepare():
            pass

    def opens_next(self) -> bool:
        """Whether to open the next lane: usually once all open lanes have decoded a round, so that the screen soon
        shows rounds; at once if the user steps through a method that is not open yet.
        """
        asked = self._steering.watched and self._steering.watched not in [lane.name for lane in self._lanes]
        stepped = bool(asked) and self._steering.paused and not self._steering.stopped
        return stepped or all(lane.rounds or lane.ended for lane in self._lanes)

    @property
    def _watched(self) -> Lane:
        """The lane that the user watches; the first lane until the user chooses another method."""
        return next((lane for lane in self._lanes if lane.name == self._steering.watched), self._lanes[0])


class Resampling:
    def __init__(self, schedule: Schedule, prompt_tokens: int, ahead: int) -> None:
        """`ahead` is the largest number of tokens that a method has chosen but not yet reported."""
        self._schedule = schedule
        self._prompt_tokens = prompt_tokens
        self._ahead = ahead
        self._seen = 0
        self._turns: dict[tuple[int, KnobName], Turn] = {}
        """Knob changes by (first position to which the change applies, knob)."""
        self._reported = Counter[str]()
        """Number of changes that events have reported, by method."""

    def told(self, turns: Sequence[Turn], lane: Lane, furthest: int) -> Iterator[Knob]:
        """Schedules the user's new knob changes; yields events of the changes that apply to the lane's next token."""
        if new := turns[self._seen :]:
            self._seen = len(turns)
            self._take(new, furthest)
        yield from self._reached(lane)

    def _take(self, new: Sequence[Turn], furthest: int) -> None:
        """New changes apply from the first position that no method has reached; the fastest generated `furthest`
        tokens.

        Several changes of one knob at one position are merged into one change, which is dropped if it restores the
        knob's earlier value.
        """
        require_knobs(turn.name for turn in new)
        position = self._prompt_tokens + self._ahead + furthest
        own = [turn for turn in new if turn.rules_name in (None, SAMPLING)]
        sampling, in_force = applied(self._schedule.latest, own)
        for turn in in_force:
            before = self._turns.pop((position, turn.name), turn).old
            if turn.value != before:
                self._turns[position, turn.name] = replace(turn, old=before)
        if in_force:
            self._schedule.turn(position, sampling)

    def _reached(self, lane: Lane) -> Iterator[Knob]:
        """Changes that apply to a lane's next token and are not reported yet; none for method `hf`, since transformers
        keeps its initial settings.
        """
        if lane.method.by_module:
            return
        position = self._prompt_tokens + lane.generated
        unreported = list(self._turns.items())[self._reported[lane.name] :]
        in_force = [turn for (start, _), turn in unreported if start <= position]
        self._reported[lane.name] += len(in_force)
        yield from lane.knob_events(in_force)

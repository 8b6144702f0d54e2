"""All waiting of the engine's thread: a paused run, a step, slow motion.

Every wait polls `Steering` each 20 ms, so a command of the user takes effect within that time. Knows no models.
"""

import time
from collections.abc import Callable

from decoder.session.steering import Stage, Steering

Idle = Callable[[], bool]
"""Work for the time of a wait; returns whether there was any to do."""

NAP_S = 0.02
SLEEP_S = 0.08
"""Shortest sleep: the round after a sleep is slowed by cold caches, so shorter ones would cost more than they wait."""


def no_work() -> bool:
    """There is nothing to do."""
    return False


def takes_step(steering: Steering) -> bool:
    """Uses up one permitted step of a paused run, if there is one; returns whether the run is to be held here."""
    pause = steering.pause
    if pause is None:
        return False
    if pause.permits:
        pause.taken += 1
    return not pause.permits


def hold(steering: Steering, stage: Stage | None = None, idle: Idle = no_work) -> None:
    """Waits while the run is paused and no step is permitted; what is `idle` is done meanwhile."""
    pause = steering.pause
    if pause is None:
        return
    steering.stage = stage
    try:
        while steering.pause is pause and not pause.permits and not steering.stopped:
            if not idle():
                time.sleep(NAP_S)
    finally:
        steering.stage = None


class SlowMotion:
    """Sleeps as long as the chosen speed asks for, after a few rounds at once.

    A round after a sleep takes several times as long as one that follows another, since threads and caches have gone
    cold. So it sleeps seldom, though often enough for a smooth picture.
    """

    def __init__(self, steering: Steering) -> None:
        self._steering = steering
        self._decoded_s = 0.0
        """Decoding since the last sleep."""

    def after(self, decoded_s: float, idle: Idle = no_work) -> None:
        """Sleeps, if it is time to, after `decoded_s` of decoding, unless the speed changes or a pause comes.

        What is `idle` is done instead of sleeping.
        """
        steering = self._steering
        self._decoded_s += decoded_s
        if self._owed_s < SLEEP_S:
            return
        began = time.perf_counter()
        while not (steering.stopped or steering.paused):
            left = self._owed_s - (time.perf_counter() - began)
            if left <= 0:
                break
            if not idle():
                time.sleep(min(left, NAP_S))
        self._decoded_s = 0.0

    @property
    def _owed_s(self) -> float:
        return self._decoded_s * (1 / min(1.0, self._steering.speed) - 1)

"""Everything that the engine's thread sleeps for: a paused run, a step, slow motion.

Whoever waits here looks again every few hundredths of a second, so that the user's next word is heard at once. Knows no
models.
"""

import time

from decoder.steering import Stage, Steering

NAP_S = 0.02


def takes_step(steering: Steering) -> bool:
    """Uses up one permitted step of a paused run, if there is one; returns whether the run is to be held here."""
    pause = steering.pause
    if pause is None:
        return False
    if pause.permits:
        pause.taken += 1
    return not pause.permits


def hold(steering: Steering, stage: Stage | None = None) -> None:
    """Waits while the run is paused and no step is permitted."""
    pause = steering.pause
    if pause is None:
        return
    steering.stage = stage
    try:
        while steering.pause is pause and not pause.permits and not steering.stopped:
            time.sleep(NAP_S)
    finally:
        steering.stage = None


def slow_down(steering: Steering, decoded_s: float) -> None:
    """Sleeps as long as the chosen speed asks for after `decoded_s` of decoding, unless it changes or a pause comes."""
    began = time.perf_counter()
    while not (steering.stopped or steering.paused) and steering.speed < 1:
        left = decoded_s * (1 / steering.speed - 1) - (time.perf_counter() - began)
        if left <= 0:
            return
        time.sleep(min(left, NAP_S))

"""Adaptive frame rate and meters of the screen's cost; a pure function of times and readings.

A frame is drawn only after the previous frame was sent. After late frames the rate is halved; it is doubled again once
the terminal has kept up for a while. Only drawing waits; events are read at every tick.
"""

from collections import deque

from dynatui.render.scene import Meters

_MOST_SKIPPED = 16
_LATE_FRAMES = 2
"""Successive late frames after which the rate is halved."""
_RECOVERY_S, _LONGEST_RECOVERY_S = 3.0, 30.0
"""Seconds without a late frame after which the rate is doubled; halving the rate doubles the value up to the maximum.
"""
_WINDOW_S = 5.0
_NEWS_S = 1.0
"""Least seconds between updates of the meters, since drawing them has a cost."""


class FrameRate:
    def __init__(self, fps: float) -> None:
        self._tick_s = 1 / fps
        self._skip = 1
        """Ticks per frame."""
        self._late = 0
        self._waiting = False
        self._drawn_at = float("-inf")
        self._kept_up_since: float | None = None
        self._recovery_s = _RECOVERY_S
        self._readings: deque[tuple[float, float, int]] = deque()
        """Time, CPU seconds of the thread, bytes sent."""
        self._meters = Meters(fps)
        self._metered_at = float("-inf")

    def due(self, now: float, *, busy: bool) -> bool:
        """Whether to draw a frame at this tick; `busy` says whether the last frame is still being sent."""
        if self._kept_up_since is None:
            self._kept_up_since = now
        if now - self._drawn_at < (self._skip - 0.5) * self._tick_s:
            return False
        if busy:
            self._wait(now)
            return False
        self._late = self._late if self._waiting else 0
        self._waiting = False
        self._speed_up(now)
        self._drawn_at = now
        return True

    def meters(self, now: float, *, cpu_s: float, sent_bytes: int) -> Meters:
        """Mean cost of the screen over the last seconds; `cpu_s` and `sent_bytes` are totals since the start."""
        readings = self._readings
        readings.append((now, cpu_s, sent_bytes))
        while now - readings[0][0] > _WINDOW_S:
            readings.popleft()
        if now - self._metered_at >= _NEWS_S:
            self._metered_at = now
            first_s, first_cpu_s, first_bytes = readings[0]
            passed_s = now - first_s
            costs = ((cpu_s - first_cpu_s) / passed_s, (sent_bytes - first_bytes) / passed_s) if passed_s > 0 else ()
            self._meters = Meters(1 / (self._tick_s * self._skip), self._skip > 1, *costs)
        return self._meters

    def _wait(self, now: float) -> None:
        self._kept_up_since = now
        if self._waiting:
            return
        self._waiting = True
        self._late += 1
        if self._late >= _LATE_FRAMES and self._skip < _MOST_SKIPPED:
            self._skip *= 2
            self._late = 0
            self._recovery_s = min(_LONGEST_RECOVERY_S, 2 * self._recovery_s)

    def _speed_up(self, now: float) -> None:
        if self._kept_up_since is None or now - self._kept_up_since < self._recovery_s:
            return
        self._kept_up_since = now
        if self._skip > 1:
            self._skip //= 2
        else:
            self._recovery_s = _RECOVERY_S

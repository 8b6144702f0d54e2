"""A clock for measurements on a busy machine. Independent of models."""

import torch

from decoder.system.device import Stopwatch
from decoder.system.waiting import waited_here_s


class ComputingClock:
    """A clock that leaves out the time in which this thread waited for a processor."""

    def __init__(self, device: torch.device) -> None:
        self._clock = Stopwatch(device)

    def now(self) -> float:
        """Seconds since a fixed moment, read after the device has finished its work, without waits for a processor."""
        waited = waited_here_s()
        while True:
            before, now = waited, self._clock.now()
            waited = waited_here_s()
            # If the thread has waited since the previous reading, it is unknown whether `now` includes this wait.
            if waited == before:
                return now - waited

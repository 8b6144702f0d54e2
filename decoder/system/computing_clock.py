"""A clock for measurements on a busy machine. Knows no models."""

import torch

from decoder.system.device import Stopwatch
from decoder.system.waiting import waited_here_s


class ComputingClock:
    """Excludes the time in which this thread waited for a processor, for timing on a busy machine."""

    def __init__(self, device: torch.device) -> None:
        self._clock = Stopwatch(device)

    def now(self) -> float:
        """After the device has finished its work."""
        waited = waited_here_s()
        while True:
            before, now = waited, self._clock.now()
            waited = waited_here_s()
            # If the thread has waited since the previous reading, it is unknown whether `now` includes this wait.
            if waited == before:
                return now - waited

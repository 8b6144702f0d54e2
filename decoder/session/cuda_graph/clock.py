"""The host's time in a round, without what is no part of decoding. Asks the device for nothing."""

import time


class Clock:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Takes no notice of the last `seconds`."""
        self._start_s += seconds

    def seconds(self) -> float:
        """How long it has run."""
        return time.perf_counter() - self._start_s

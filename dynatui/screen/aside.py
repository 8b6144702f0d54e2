"""Background work in a separate thread, one job at a time, so that the screen never waits for it.

Knows neither the work nor the screen.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Aside:
    """`call_later` schedules a function in the app's thread; it is called from any thread."""

    def __init__(self, call_later: Callable[..., Any]) -> None:
        self._call_later = call_later
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None], on_end: Callable[[Exception | None], None]) -> None:
        """Starts a job; when it ends, `on_end` is called in the app's thread with the job's error or None."""
        self._thread = threading.Thread(target=self._do, args=(work, on_end), daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _do(self, work: Callable[[], None], on_end: Callable[[Exception | None], None]) -> None:
        fault: Exception | None = None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - `on_end` raises the error in the app, unless the user can remedy it
            fault = error
        with suppress(RuntimeError):  # the app has ended
            self._call_later(on_end, fault)

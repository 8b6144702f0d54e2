"""Work that takes long, one at a time, in a thread of its own, so that the screen never waits for it.

Knows neither the work nor the screen.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Aside:
    """Does one work at a time; the program may end before it is done.

    Args:
        call_later: Calls a function with arguments in the app's own thread; may be called by any.
    """

    def __init__(self, call_later: Callable[..., Any]) -> None:
        self._call_later = call_later
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a work is not over."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Begins a work; `done` is told in the app's thread that it is over, and what it raised."""
        self._thread = threading.Thread(target=self._do, args=(work, done), daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Waits until the work is over, but no longer than so many seconds."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _do(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        fault: Exception | None = None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - `done` raises in the app what is no error of the user's
            fault = error
        with suppress(RuntimeError):  # the app is over
            self._call_later(done, fault)

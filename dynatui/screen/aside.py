"""Long work, one piece at a time, in its own thread, so that the screen never waits for it.

Knows neither the work nor the screen.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Aside:
    """Does one piece of work at a time; the program may end before it is done.

    Args:
        call_later: Calls a function with arguments in the app's own thread; may be called by any.
    """

    def __init__(self, call_later: Callable[..., Any]) -> None:
        self._call_later = call_later
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Begins work; at its end, `done` is called in the app's thread with its error, if any."""
        self._thread = threading.Thread(target=self._do, args=(work, done), daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Waits for the end of the work, for at most so many seconds."""
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

"""One error message of several processes of a run: the first to take a shared token prints it.

The token is a byte in a pipe without a writer: the process that reads it prints its error, all others stay silent. A
process without others always prints. Knows neither the processes nor the message.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VARIABLE = "DYNATUI_LAST_WORD"
"""The variable with the number of the pipe."""


class LastWord:
    """The token within one process."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self._ours: bool | None = None

    def claimed(self) -> bool:
        """Whether this process has the token; the first call takes it."""
        if self._ours is None:
            self._ours = bool(os.read(self.pipe, 1))
        return self._ours


@contextmanager
def shared() -> Iterator[LastWord]:
    """A new token; its pipe is closed after the block."""
    held, filled = os.pipe()
    try:
        os.write(filled, b"\0")
        os.close(filled)
        yield LastWord(held)
    finally:
        os.close(held)


def claimed(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process may print its error; called once, right before it prints."""
    return VARIABLE not in environment or LastWord(int(environment[VARIABLE])).claimed()

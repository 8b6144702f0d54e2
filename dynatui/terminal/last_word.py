"""Lets only one of several processes of a run print an error: the first that takes a shared token.

The token is a byte in a pipe without a writer: the process that reads it prints its error, and all others stay silent.
A process that runs alone always prints. Knows neither the processes nor the message.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VARIABLE = "DYNATUI_LAST_WORD"
"""Environment variable with the descriptor of the pipe."""


class LastWord:
    """The token, as seen by one process."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self._ours: bool | None = None

    def claimed(self) -> bool:
        """Whether this process has the token; the first call tries to take it."""
        if self._ours is None:
            self._ours = bool(os.read(self.pipe, 1))
        return self._ours


@contextmanager
def shared() -> Iterator[LastWord]:
    """Context with a new token, whose pipe is closed at the end."""
    held, filled = os.pipe()
    try:
        os.write(filled, b"\0")
        os.close(filled)
        yield LastWord(held)
    finally:
        os.close(held)


def claimed(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process may print its error; to be called once, immediately before printing."""
    return VARIABLE not in environment or LastWord(int(environment[VARIABLE])).claimed()

"""Who tells why several processes of one run end: the first that takes the one token that they share.

The token is a byte in a pipe that nobody writes to any more: whoever reads it has the last word, and all others stay
silent. A process that shares its end with no other has it always. Knows neither who asks nor what is told.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VARIABLE = "DYNATUI_LAST_WORD"
"""Tells a process the number of the pipe."""


class LastWord:
    """The token, as one process sees it."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self._ours: bool | None = None

    def claimed(self) -> bool:
        """Whether this process has it; the first call settles that."""
        if self._ours is None:
            self._ours = bool(os.read(self.pipe, 1))
        return self._ours


@contextmanager
def shared() -> Iterator[LastWord]:
    """A new token; its pipe is closed behind the block."""
    held, filled = os.pipe()
    try:
        os.write(filled, b"\0")
        os.close(filled)
        yield LastWord(held)
    finally:
        os.close(held)


def claimed(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process may tell why it ends; asked once, right before it would."""
    return VARIABLE not in environment or LastWord(int(environment[VARIABLE])).claimed()

"""Lets one of several processes print an error: the one that reads the byte in a pipe without a writer."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VARIABLE = "DYNATUI_LAST_WORD"
"""Holds the descriptor of the pipe."""


class LastWord:
    """Only the process that takes the token from the pipe may print its error."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self._has_token: bool | None = None

    def claimed(self) -> bool:
        if self._has_token is None:
            self._has_token = bool(os.read(self.pipe, 1))
        return self._has_token


@contextmanager
def shared() -> Iterator[LastWord]:
    readable, writable = os.pipe()
    try:
        os.write(writable, b"\0")
        os.close(writable)
        yield LastWord(readable)
    finally:
        os.close(readable)


def claimed(environment: Mapping[str, str] = os.environ) -> bool:
    """To be called once, immediately before printing."""
    return VARIABLE not in environment or LastWord(int(environment[VARIABLE])).claimed()

"""Shows progress and the remaining time as one line on standard error; each step overwrites this line.

If standard error is not a terminal, prints a new line every `SELDOM_S` seconds instead.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from shutil import get_terminal_size
from typing import Protocol, TypeVar

from dynatui.terminal import streams

SELDOM_S = 30.0
"""Minimum time in seconds between two progress lines if there is no terminal."""
_OVER = "\r\x1b[K"
_BAR = 20
"""Width in characters; the bar is ASCII, since the terminal's font is unknown."""


class Step(Protocol):
    """The state of a long task: the progress in words, and the completed share of the work, in [0, 1]."""

    @property
    def line(self) -> str: ...

    @property
    def share(self) -> float: ...


S = TypeVar("S", bound=Step)


def words(seconds: float) -> str:
    """A duration in a suitable unit, such as 40 s, 3 min or 2.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def left_s(first: float, share: float, elapsed_s: float) -> float | None:
    """Seconds until the share is 1, at the average pace since it was `first`; None if the share has not grown."""
    return elapsed_s * (1 - share) / (share - first) if share > first else None


def bar(share: float) -> str:
    full = round(_BAR * share)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {share:.0%}"


def say_line(line: str) -> None:
    """Prints a line that later progress does not overwrite."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(_OVER)
    streams.say(line)


def shown(steps: Iterable[S]) -> Iterator[S]:
    began, printed_at, first = time.monotonic(), -SELDOM_S, None
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    try:
        for step in steps:
            now = time.monotonic()
            first = step.share if first is None else first
            left = left_s(first, step.share, now - began)
            line = step.line if left is None or step.share >= 1 else f"{words(left)} left, {step.line}"
            if on_terminal:
                # A line wider than the terminal would wrap, and only its last part would be overwritten.
                whole = f"dynatui: {bar(step.share)} {line}"
                sys.stderr.write(_OVER + whole[: get_terminal_size().columns - 1])
                sys.stderr.flush()
            elif now - printed_at >= SELDOM_S or step.share >= 1:
                printed_at = now
                streams.say(line)
            yield step
    finally:
        if on_terminal:
            sys.stderr.write("\n")

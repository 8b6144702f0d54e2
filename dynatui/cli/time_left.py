"""How far something has come, and how long it will still take: one line on standard error that is written over.

Where standard error is no terminal, a line every now and then.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from shutil import get_terminal_size
from typing import Protocol, TypeVar

from dynatui.terminal import streams

SELDOM_S = 30.0
_OVER = "\r\x1b[K"
_BAR = 20
"""Cells of the bar on a terminal; ASCII, since nothing is known of its font."""


class Step(Protocol):
    """How far it has come."""

    @property
    def line(self) -> str:
        """In words."""

    @property
    def share(self) -> float:
        """In [0, 1]."""


S = TypeVar("S", bound=Step)


def words(seconds: float) -> str:
    """A time as people say it: 40 s, 3 min, 2.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def left_s(first: float, share: float, elapsed_s: float) -> float | None:
    """Seconds until the share is 1, at the pace since it was `first`; None as long as it has not moved."""
    return elapsed_s * (1 - share) / (share - first) if share > first else None


def bar(share: float) -> str:
    """A share of 1 as a bar and in percent."""
    full = round(_BAR * share)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {share:.0%}"


def said(line: str) -> None:
    """A line that stays, while steps are told."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(_OVER)
    streams.say(line)


def shown(steps: Iterable[S]) -> Iterator[S]:
    """The same steps, each told as it comes."""
    began, told, first = time.monotonic(), -SELDOM_S, None
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    try:
        for step in steps:
            now = time.monotonic()
            first = step.share if first is None else first
            left = left_s(first, step.share, now - began)
            line = step.line if left is None or step.share >= 1 else f"{words(left)} left, {step.line}"
            if on_terminal:
                # What is wider than the terminal would wrap, and only its last line would be written over.
                whole = f"dynatui: {bar(step.share)} {line}"
                sys.stderr.write(_OVER + whole[: get_terminal_size().columns - 1])
                sys.stderr.flush()
            elif now - told >= SELDOM_S or step.share >= 1:
                told = now
                streams.say(line)
            yield step
    finally:
        if on_terminal:
            sys.stderr.write("\n")

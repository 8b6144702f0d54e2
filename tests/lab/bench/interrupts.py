"""Interrupts during measurements."""

from collections.abc import Iterator
from itertools import islice

from dynatui.lab.bench.on_pair import Progress, Show


def interrupted_after(count: int) -> Show:
    """A progress display that raises KeyboardInterrupt after `count` steps."""

    def show(steps: Iterator[Progress]) -> Iterator[Progress]:
        yield from islice(steps, count)
        raise KeyboardInterrupt

    return show

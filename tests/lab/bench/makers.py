"""A made-up machine, for reports that were not measured, and interrupts during measurements."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from dynatui.lab.bench import Progress, Show
from dynatui.lab.bench.machine import Machine
from dynatui.session import Models
from tests import tiny

MACHINE = Machine(
    system="Linux",
    processor="a processor",
    cores=2,
    threads=1,
    accelerator=None,
    versions={"dynatui": "0", "torch": "2"},
    load_before=0.5,
    copy_bytes_per_s=None,
)
PAIR: dict[str, Any] = {
    "target": "target",
    "draft": "draft",
    "device": "cpu",
    "dtype": "float32",
    "draft_dtype": "float32",
    "seed": 0,
}
"""Fields that the requests of all measurements share."""


def on_cpu(pair: tiny.TinyPair) -> Models:
    return Models(str(pair.target), str(pair.draft), "cpu", "float32")


def interrupted_after(count: int) -> Show:
    """A progress display that raises KeyboardInterrupt after `count` steps."""

    def show(steps: Iterator[Progress]) -> Iterator[Progress]:
        yield from islice(steps, count)
        raise KeyboardInterrupt

    return show

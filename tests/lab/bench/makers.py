"""A made-up machine, for reports that were not measured, and interrupts during measurements."""

from collections.abc import Iterator
from itertools import islice

from dynatui.lab.bench.machine import Machine
from dynatui.lab.bench.on_pair import Progress, Show

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


def interrupted_after(count: int) -> Show:
    """A progress display that raises KeyboardInterrupt after `count` steps."""

    def show(steps: Iterator[Progress]) -> Iterator[Progress]:
        yield from islice(steps, count)
        raise KeyboardInterrupt

    return show

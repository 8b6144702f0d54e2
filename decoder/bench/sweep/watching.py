"""A sweep as others see it: what the database holds, now and again and again while workers measure."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, closing

from sqlalchemy import URL

from decoder.bench.sweep.database import read_only
from decoder.bench.sweep.processes import Joined, Task, working
from decoder.bench.sweep.report import SweepReport, read
from decoder.bench.sweep.trials import Sweep, found


def looked_up(url: URL, study: str | None) -> SweepReport:
    """What is known of a study; without a name, of the only one.

    Raises:
        ConfigError: There is no such study, or more than one to choose from.
        DatabaseError: The database cannot be read, or is none of sweeps.
    """
    with read_only(url) as storage:
        return read(found(storage, study))


def watched(
    task: Task, workers: int, every_s: float, note: Callable[[str], None]
) -> Generator[SweepReport, None, None]:
    """What is known, every now and then, until all is measured; ends the workers when it is closed.

    Raises:
        DecoderError: A worker failed, or the database did.
    """
    with ExitStack() as held:
        sweep: Sweep | None = None
        for said in held.enter_context(closing(working(task, workers, every_s))):
            if isinstance(said, str):
                note(said)
            elif isinstance(said, Joined) and sweep is None:
                sweep = found(held.enter_context(read_only(task.storage)), said.study)
            if sweep is not None:
                yield read(sweep)

"""Reports of a sweep while its workers measure."""

from collections.abc import Generator
from contextlib import closing, suppress

from decoder.bench.database import Database
from decoder.bench.on_pair import Note
from decoder.bench.sweep.processes import Joined, Task, working
from decoder.bench.sweep.report import SweepReport, read
from decoder.bench.sweep.trials import Sweep, existing, given_back, require_sweeps
from decoder.errors import DatabaseError


def looked_up(database: Database, study: str | None) -> SweepReport:
    """Report of a study; without a name, of the only study.

    Raises:
        ConfigError: There is no such study, or more than one to choose from.
        DatabaseError: The database cannot be read, or holds no sweeps.
    """
    require_sweeps(database)
    return read(existing(database, study))


def watched(task: Task, workers: int, every_s: float, note: Note) -> Generator[SweepReport, None, None]:
    """Starts workers and yields reports every `every_s` seconds until all settings have results.

    Closed or interrupted before, it ends the workers and returns their settings.

    Raises:
        DecoderError: A worker failed, or the database did.
    """
    known: list[Joined] = []
    try:
        yield from _reports(task, workers, every_s, note, known)
    except (GeneratorExit, KeyboardInterrupt):
        if known:
            given_back(existing(task.storage, known[0].study), [each.worker for each in known])
        raise


def _reports(
    task: Task, workers: int, every_s: float, note: Note, known: list[Joined]
) -> Generator[SweepReport, None, None]:
    """Reports as in `watched`, without returning settings; appends workers that join to `known`."""
    sweep: Sweep | None = None
    with closing(working(task, workers, every_s)) as messages:
        for message in messages:
            if isinstance(message, str):
                note(message)
            elif isinstance(message, Joined):
                known.append(message)
                sweep = sweep or existing(task.storage, message.study)
            if sweep is not None:
                # a database may be away for a moment; if it stays away, a worker raises the error
                report = None
                with suppress(DatabaseError):
                    report = read(sweep)
                if report is not None:
                    yield report

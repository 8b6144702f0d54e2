"""Yields reports on a sweep while its workers measure, or reads one report from the database."""

from collections.abc import Generator
from contextlib import closing, suppress

from decoder.errors import DatabaseError
from dynatui.lab.bench.database import Database
from dynatui.lab.bench.on_pair import Note
from dynatui.lab.bench.sweep.processes import Joined, Task, working
from dynatui.lab.bench.sweep.report import SweepReport, read
from dynatui.lab.bench.sweep.trials import Sweep, existing, given_back, require_sweeps


def looked_up(database: Database, study: str | None) -> SweepReport:
    """Report of the study with the given name, or if the name is None, of the only study in the database.

    Raises:
        ConfigError: There is no study with that name, or no name was given and there are several studies.
        DatabaseError: The database cannot be read, or holds no sweeps.
    """
    require_sweeps(database)
    return read(existing(database, study))


def watched(task: Task, workers: int, every_s: float, note: Note) -> Generator[SweepReport, None, None]:
    """Starts workers and yields a report at least every `every_s` seconds until all settings are finished.

    If the generator is closed or interrupted earlier, it ends the workers and gives up their claims.

    Raises:
        DecoderError: A worker or the database failed.
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
    """Yields the reports for `watched`, and appends each worker that has joined the study to `known`."""
    sweep: Sweep | None = None
    with closing(working(task, workers, every_s)) as messages:
        for message in messages:
            if isinstance(message, str):
                note(message)
            elif isinstance(message, Joined):
                known.append(message)
                sweep = sweep or existing(task.storage, message.study)
            if sweep is not None:
                # An error is ignored, since the database may be unreachable only for a short time. If it remains
                # unreachable, a worker raises the error.
                report = None
                with suppress(DatabaseError):
                    report = read(sweep)
                if report is not None:
                    yield report

"""`dynatui bench sweep`: the options for measuring a grid of settings, its database, and the display of progress."""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from decoder.bench.database import Database, of_file, understood
from decoder.bench.on_pair import OnPair
from decoder.bench.sweep.job import OnSettings
from decoder.bench.sweep.spaces import SPACES, Axes, Space, axes_with, axis_values, space_named
from decoder.errors import ConfigError, quoted, require, shortened
from dynatui.cli import options, request, settings
from dynatui.cli.bench_result import Measured, run_and_report
from dynatui.terminal import streams

if TYPE_CHECKING:
    from decoder.bench.sweep.measuring import Ready

EVERY_S = 5.0
"""Seconds between two database queries for the display: long, since queries take time from the measurement."""
MOST_WORKERS = 64
FILE = "sweeps.db"
BESIDE_SHOW = frozenset({"show", "storage", "study", "output", "json_file"})
"""Parameters that have an effect even when nothing is measured."""

_prompt, _swept, _kept = (
    partial(Option, rich_help_panel=panel) for panel in (options.PROMPTS, "What is swept", "Measurement")
)

SpaceName = Annotated[
    str | None,
    Argument(metavar="SPACE", show_default=False, help=f"Grid of settings to measure, of {', '.join(SPACES)}."),
]
AxisValues = Annotated[
    list[str] | None,
    _swept(
        "--axis",
        metavar="NAME=V,V,..",
        help="Other values of an axis. "
        + "; ".join(f"{name}: {', '.join(space.axes)}" for name, space in SPACES.items())
        + ". T: new tokens. May be repeated.",
    ),
]
Preset = Annotated[
    str | None,
    _swept(
        metavar="NAME",
        show_default="paper",
        help="DynaTree's knobs that are not on an axis, and the knobs of the reference.",
    ),
]
Repeats = Annotated[int, _kept(metavar="R", min=1, max=1000, help="Times that each prompt is decoded in a trial.")]
Workers = Annotated[
    int,
    _kept(
        metavar="N",
        min=1,
        max=MOST_WORKERS,
        help="Worker processes on this machine. The same command on another machine with the same "
        "--storage adds workers.",
    ),
]
Storage = Annotated[
    str | None,
    _kept(
        metavar="URL",
        show_default=f"{FILE} in --output",
        help="The database of trials: sqlite:///FILE, or postgresql://USER@HOST/DATABASE for several machines.",
    ),
]
Study = Annotated[
    str | None, _kept(metavar="NAME", show_default="made from the settings", help="The study's name in the database.")
]
Output = Annotated[Path, _kept(metavar="DIR", help="Folder of the database, where --storage names none.")]
Show = Annotated[bool, _kept("--show", help="Show what the database holds, and measure nothing.")]
JsonFile = Annotated[
    Path | None, _kept("--json", metavar="FILE", help="Append to FILE a line of JSON with every trial.")
]


def sweep(
    context: typer.Context,
    space: SpaceName = None,
    *,
    pair: OnPair,
    axis: AxisValues = None,
    preset: Preset = None,
    prompts: request.Prompts,
    repeats: Repeats = 1,
    seed: options.Seed = 0,
    workers: Workers = 1,
    storage: Storage = None,
    study: Study = None,
    output: Output = Path(),
    show: Show = False,
    json_file: JsonFile = None,
) -> int:
    """Measure a grid of settings beside plain decoding, as trials in a database; resumes an interrupted sweep.

    Every trial decodes the prompts by one setting, by ar and by a reference, turn by turn. Every text has T new tokens,
    even where it could end earlier. A setting whose text differs from ar's gets no speed.
    """
    typed = settings.typed(context)
    require(not {"storage", "output"} <= typed.keys(), "--output has no effect beside --storage; leave it out")
    if show:
        settings.refuse(context, dict.fromkeys(typed.keys() - BESIDE_SHOW, "beside --show"))
        return run_and_report(lambda: _shown(_database(storage, output), study), json_file)
    require(space is not None, f"no space was named; give one of {', '.join(SPACES)}")
    swept = space_named(space or "")
    job = OnSettings(
        space=swept.name,
        axes=_axes(swept, axis or ()),
        preset=preset,
        prompts=prompts.read(),
        repeats=repeats,
        seed=seed,
        **pair.pair_options,
    )
    job.request()
    return run_and_report(lambda: _measured(job, _made(_database(storage, output)), study, workers), json_file)


def _measured(job: OnSettings, database: Database, study: str | None, workers: int) -> Measured:
    from decoder.bench.sweep.processes import Task  # noqa: PLC0415 - not needed for --help
    from decoder.bench.sweep.watching import watched  # noqa: PLC0415
    from dynatui.cli.sweep_progress import SweepDisplay  # noqa: PLC0415

    name, interrupted, progress = None, False, SweepDisplay()
    task = Task(partial(_prepared, job), database, study)
    try:
        with progress.shown(), closing(watched(task, workers, EVERY_S, streams.say)) as reports:
            for report in reports:
                progress.update(report)
                name = report.study
    except KeyboardInterrupt:
        interrupted = True
    if name is None:
        raise KeyboardInterrupt
    return _shown(database, name, interrupted=interrupted)


def _prepared(job: OnSettings, note: Callable[[str], None]) -> "Ready":
    """Prepares the measurement in a worker process: loads the models, and returns what its trials need."""
    from decoder.bench.sweep.measuring import ready  # noqa: PLC0415 - imports torch

    return ready(job, note)


def _shown(database: Database, study: str | None, *, interrupted: bool = False) -> Measured:
    from decoder.bench.sweep.table import on_sweep  # noqa: PLC0415 - not needed for --help
    from decoder.bench.sweep.watching import looked_up  # noqa: PLC0415

    report = looked_up(database, study)
    return Measured(on_sweep(report), report, interrupted)


def _axes(space: Space, given: Sequence[str]) -> Axes:
    values = {}
    for text in given:
        name, equals, listed = text.partition("=")
        require(bool(equals), f"--axis is {quoted(text)}; give NAME=V,V,.., for example T=100,200")
        values[name.strip()] = axis_values(space, name.strip(), listed)
    return axes_with(space, values)


def _database(storage: str | None, output: Path) -> Database:
    return of_file(output / FILE) if storage is None else understood(storage)


def _made(database: Database) -> Database:
    """The same database, after the folder for its file was made."""
    if database.file is not None:
        folder = database.file.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot make the folder {shortened(folder)}: {error.strerror}; let --output or --storage name another"
            ) from None
    return database

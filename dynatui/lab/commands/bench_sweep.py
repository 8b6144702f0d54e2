"""`dynatui bench sweep`: declares its options, opens the database of trials, and shows progress and results."""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from decoder.errors import ConfigError, quoted, require, shortened
from dynatui.cli import options, request, settings
from dynatui.cli.options import MEASUREMENT
from dynatui.cli.parameters import CONTEXT, Declared, argument, in_panel, option, switch
from dynatui.lab.bench.database import Database, of_file, understood
from dynatui.lab.bench.on_pair import OnPair
from dynatui.lab.bench.sweep.job import OnSettings
from dynatui.lab.bench.sweep.spaces import SPACES, Space, axes_with, axis_values, space_named
from dynatui.lab.commands.bench_result import Measured, run_and_report
from dynatui.lab.commands.pair import PAIR
from dynatui.terminal import streams

if TYPE_CHECKING:
    from dynatui.lab.bench.sweep.measuring import Ready

EVERY_S = 5.0
"""Seconds between two database queries for the display; more frequent queries would slow the measurement."""
MOST_WORKERS = 64
SWEPT = "What is swept"
FILE = "sweeps.db"
BESIDE_SHOW = frozenset({"show", "storage", "study", "output", "json_file"})
"""Parameters that have an effect even when nothing is measured."""


def _axis(text: str) -> tuple[str, str]:
    name, equals, listed = text.partition("=")
    require(bool(equals), f"--axis is {quoted(text)}; give NAME=V,V,.., for example T=100,200")
    return name.strip(), listed


PARAMETERS: Declared = (
    CONTEXT,
    argument(
        "space", "SPACE", f"Grid of settings to measure: one of {', '.join(SPACES)}.", required=False, parse=space_named
    ),
    PAIR,
    *in_panel(
        SWEPT,
        option(
            "--axis NAME=V,V,..",
            "Values of an axis, instead of the default values. Axes: "
            + "; ".join(f"{name}: {', '.join(space.axes)}" for name, space in SPACES.items())
            + ". T is the number of new tokens. May be repeated.",
            list[str],
            parse=_axis,
        ),
        option(
            "--preset NAME",
            "Preset that sets all knobs of the reference setting, and the knobs that have no axis.",
            show_default="paper",
        ),
    ),
    request.CUT_PROMPTS,
    option(
        "--repeats R",
        "Number of times that each prompt is decoded in a trial.",
        int,
        default=1,
        least=1,
        most=1000,
        panel=MEASUREMENT,
    ),
    options.SEED,
    *in_panel(
        MEASUREMENT,
        option(
            "--workers N",
            "Number of worker processes on this machine. To add workers on another machine, run the same command there "
            "with the same --storage.",
            int,
            default=1,
            least=1,
            most=MOST_WORKERS,
        ),
        option(
            "--storage URL",
            "The database of trials: sqlite:///FILE, or postgresql://USER@HOST/DATABASE for several machines.",
            parse=understood,
            show_default=f"{FILE} in --output",
        ),
        option("--study NAME", "The study's name in the database.", show_default="made from the settings"),
        option("--output DIR", "Folder of the database, if --storage is not given.", Path, default=Path()),
        switch("--show", "Show what the database holds, and measure nothing."),
        option("--json FILE", "Append to FILE a line of JSON with every trial.", Path, name="json_file"),
    ),
)


def sweep(
    context: typer.Context,
    *,
    space: Space | None,
    pair: OnPair,
    axis: Sequence[tuple[str, str]],
    preset: str | None,
    prompts: request.Prompts,
    repeats: int,
    seed: int,
    workers: int,
    storage: Database | None,
    study: str | None,
    output: Path,
    show: bool,
    json_file: Path | None,
) -> int:
    """Measure a grid of settings beside plain decoding, as trials in a database; resumes an interrupted sweep.

    Every trial decodes the prompts with one setting, with ar and with a reference setting, in turn. Every text has T
    new tokens, even after an end-of-text token. No speed is reported for a setting whose text differs from that of ar.
    """
    typed = settings.typed(context)
    require(not {"storage", "output"} <= typed.keys(), "--output has no effect beside --storage; leave --output out")
    database = storage or of_file(output / FILE)
    if show:
        settings.refuse(context, dict.fromkeys(typed.keys() - BESIDE_SHOW, "beside --show"))
        return run_and_report(lambda: _shown(database, study), json_file)
    if space is None:
        raise ConfigError(f"the argument SPACE is missing; give one of {', '.join(SPACES)}")
    job = OnSettings(
        space=space.name,
        axes=axes_with(space, {name: axis_values(space, name, listed) for name, listed in axis}),
        preset=preset,
        prompts=prompts.read(),
        repeats=repeats,
        seed=seed,
        **pair.pair_options,
    )
    job.request()
    return run_and_report(lambda: _measured(job, _made(database), study, workers), json_file)


def _measured(job: OnSettings, database: Database, study: str | None, workers: int) -> Measured:
    from dynatui.lab.bench.sweep.processes import Task  # noqa: PLC0415 - not needed for --help
    from dynatui.lab.bench.sweep.watching import watched  # noqa: PLC0415
    from dynatui.lab.commands.sweep_progress import SweepDisplay  # noqa: PLC0415

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
    """Runs in a worker process: loads the models, and returns what the trials of this worker need."""
    from dynatui.lab.bench.sweep.measuring import ready  # noqa: PLC0415 - imports torch

    return ready(job, note)


def _shown(database: Database, study: str | None, *, interrupted: bool = False) -> Measured:
    from dynatui.lab.bench.sweep.table import on_sweep  # noqa: PLC0415 - not needed for --help
    from dynatui.lab.bench.sweep.watching import looked_up  # noqa: PLC0415

    report = looked_up(database, study)
    return Measured(on_sweep(report), report, interrupted)


def _made(database: Database) -> Database:
    """Makes the folder for the database's file, and returns the database."""
    if database.file is not None:
        folder = database.file.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot make the folder {shortened(folder)}: {error.strerror}; name another folder by --output or "
                "--storage"
            ) from None
    return database

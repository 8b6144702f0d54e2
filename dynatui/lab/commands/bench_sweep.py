"""`dynatui bench sweep`: the options of the command, and the output of its progress and results."""

from collections.abc import Sequence
from pathlib import Path

import click

from decoder.errors import ConfigError, quoted, require, shortened
from dynatui.cli import options, request, settings
from dynatui.cli.options import MEASUREMENT
from dynatui.cli.parameters import CONTEXT, Declared, argument, in_panel, option, switch
from dynatui.lab.bench.on_pair import OnPair
from dynatui.lab.bench.sweep.spaces import SPACES, OnSettings, Shard, Space, axes_with, axis_values, space_named
from dynatui.lab.commands.shared import PAIR, Measured, json_file, repeats, run_and_report, say_line, shown

SWEPT = "What is swept"
BESIDE_SHOW = frozenset({"show", "output", "json_file"})


def _axis(text: str) -> tuple[str, str]:
    name, equals, listed = text.partition("=")
    require(bool(equals), f"--axis is {quoted(text)}; give NAME=V,V,.., for example T=100,200")
    return name.strip(), listed


def _shard(text: str) -> Shard:
    number, slash, count = text.partition("/")
    require(
        bool(slash) and number.strip().isdecimal() and count.strip().isdecimal(),
        f"--shard is {quoted(text)}; give I/N, for example 1/3",
    )
    return Shard(int(number), int(count))


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
    repeats("Number of times that each prompt is decoded with a setting.", default=1),
    options.SEED,
    *in_panel(
        MEASUREMENT,
        option(
            "--shard I/N",
            "Measure only the I-th of N parts of the grid. Other processes and machines measure the other parts; logs "
            "in one folder are shown together.",
            parse=_shard,
            show_default="the whole grid",
        ),
        option("--output DIR", "Folder of the logs, one of each shard.", Path, default=Path()),
        switch("--show", "Show what the folder holds, and measure nothing."),
        json_file("every setting"),
    ),
)


def sweep(
    context: click.Context,
    *,
    space: Space | None,
    pair: OnPair,
    axis: Sequence[tuple[str, str]],
    preset: str | None,
    prompts: request.Prompts,
    repeats: int,
    seed: int,
    shard: Shard | None,
    output: Path,
    show: bool,
    json_file: Path | None,
) -> int:
    """Measure a grid of settings beside plain decoding; resumes an interrupted sweep.

    Every setting decodes the prompts beside ar and a reference setting, in turn. Every text has T new tokens, even
    after an end-of-text token. No speed is reported for a setting whose text differs from that of ar.
    """
    if show:
        typed = settings.typed(context)
        settings.refuse(context, dict.fromkeys(typed.keys() - BESIDE_SHOW, "beside --show"))
        return run_and_report(lambda: _kept(output), json_file)
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
    return run_and_report(lambda: _measured(job, _made(output), shard or Shard()), json_file)


def _measured(job: OnSettings, folder: Path, shard: Shard) -> Measured:
    from dynatui.lab.bench.sweep.measuring import measure_sweep  # noqa: PLC0415 - imports torch
    from dynatui.lab.bench.sweep.report import on_sweep  # noqa: PLC0415

    done = measure_sweep(job, folder, shard, say_line, shown)
    return Measured(on_sweep(done.report), done.report, done.interrupted)


def _kept(folder: Path) -> Measured:
    from dynatui.lab.bench.sweep.report import on_sweep, read  # noqa: PLC0415 - imports torch

    report = read(folder)
    return Measured(on_sweep(report), report, interrupted=False)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {shortened(folder)}: {error.strerror}; name another folder by --output"
        ) from None
    return folder

"""`dynatui bench sweep`: the options of the command, and the output of its progress and results."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from decoder.errors import ConfigError, quoted, require
from decoder.system.whole_files import made_folder
from dynatui.cli import options, request, settings
from dynatui.cli.options import MEASUREMENT
from dynatui.cli.parameters import CONTEXT, Declared, argument, in_panel, option, switch
from dynatui.lab.bench import Done
from dynatui.lab.bench.spaces import SPACES, Shard, Space, SweepRequest, space_named
from dynatui.lab.commands.shared import PAIR, Measured, json_file, repeats, run_and_report, say_line, shown
from dynatui.session import Models

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
    pair: Models,
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
    asked = SweepRequest(
        space=space.name,
        axes=space.axes_with(dict(axis)),
        reference=msgspec.to_builtins(space.base(preset)),
        prompts=prompts.read(),
        repeats=repeats,
        seed=seed,
    )
    for setting in asked.settings:
        asked.configs(setting)  # raises ConfigError before models are loaded
    return run_and_report(lambda: _measured(pair, asked, made_folder(output), shard or Shard()), json_file)


def _measured(pair: Models, asked: SweepRequest, folder: Path, shard: Shard) -> Measured:
    from dynatui.lab.bench.sweep import measure_sweep, on_sweep  # noqa: PLC0415 - imports torch

    done = measure_sweep(pair, asked, folder, shard, say_line, shown)
    return Measured(on_sweep(done.report), done)


def _kept(folder: Path) -> Measured:
    from dynatui.lab.bench.sweep import on_sweep, read  # noqa: PLC0415 - imports torch

    report = read(folder)
    return Measured(on_sweep(report), Done(report, interrupted=False))

"""`dynatui tune`: searches for the fastest knobs for a user's prompts on this machine, and writes them as a preset;
with --drafts, ranks drafts instead. The search and verdict are in `dynatui.lab.tuning`. Imports torch only when needed.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING

import click

from decoder.errors import require
from decoder.models.names import LOOKUP, require_both
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from dynatui.cli import options, parameters, presets, request, settings
from dynatui.cli.headless import INTERRUPTED
from dynatui.cli.parameters import CONTEXT, Command, Declared, Given, OptionGroup, in_panel, option, switch
from dynatui.lab.commands.shared import names, say_line, shown
from dynatui.session import Models
from dynatui.terminal import streams
from dynatui.terminal.shutdown import INTERRUPTING, handled, stoppable

if TYPE_CHECKING:
    from dynatui.lab.tuning.job import OnPrompts
    from dynatui.lab.tuning.outcome import Tuned, TuneProgress

TUNING = "Tuning"
PARAMETERS: Declared = (
    CONTEXT,
    request.MODELS,
    request.PROMPTS,
    options.CHAT,
    *in_panel(
        TUNING,
        option(
            "--drafts ID|DIR,..",
            "Instead of searching for knobs, rank these drafts of the target by speed, and show the agreement, cost "
            "and bottleneck of each draft.",
            parse=lambda text: tuple(map(os.path.expanduser, names(text))),
        ),
        option("--minutes M", "Time for the search and for the check of its result, in minutes.", float, default=5.0),
        option("--max-new-tokens N", "Number of tokens to generate per text.", int, default=64, least=1),
        option("--name NAME", "Name of the preset, for dynatui --preset NAME.", default="mine"),
        switch("--force", "Replace a preset of the same name."),
        option("--storage URL", "Optuna database, such as sqlite:///tuning.db, from which a later search continues."),
    ),
    options.SEED,
    OptionGroup("sampling", options.SAMPLING_OPTIONS),
)
OF_THE_SEARCH = ("draft", "exact", "compiled", "kernels", "minutes", "name", "force", "storage")
"""Parameters that have no effect when drafts are ranked."""


def command() -> Command:
    return parameters.command("tune", tune, PARAMETERS, settings.fallback)


def tune(
    context: click.Context,
    *,
    models: Models,
    prompts: request.Prompts,
    chat: bool | None,
    drafts: tuple[str, ...] | None,
    minutes: float,
    max_new_tokens: int,
    name: str,
    force: bool,
    storage: str | None,
    seed: int,
    sampling: Given,
) -> int:
    """Find the DynaTree knobs that are fastest for your prompts on this machine, and write them as a preset.

    Candidates race against the best setting so far, text by text. The result is then compared, on texts that the search
    has not used, with the shipped preset, auto, linear and plain decoding. Ctrl-C ends the search early; a second
    Ctrl-C ends the program.
    """
    require_both(models.target, models.draft if drafts is None else LOOKUP)
    texts = prompts.read(chat)
    run = request.run_config({**sampling, "max_new_tokens": max_new_tokens, "seed": seed, "chat": chat})
    if drafts is not None:
        return ranked(context, drafts, models, texts, run)
    presets.prepare(name, force=force)
    from dynatui.lab.tuning.job import OnPrompts  # noqa: PLC0415 - imports torch

    job = OnPrompts(texts, run, minutes, storage=storage, **vars(models))
    return _searched(job, name, force=force)


def ranked(
    context: click.Context, drafts: tuple[str, ...], models: Models, prompts: tuple[AnyPrompt, ...], run: RunConfig
) -> int:
    """Ranks drafts; raises DecoderError if an option without effect beside --drafts is given, or no draft is usable."""
    settings.refuse(context, dict.fromkeys(OF_THE_SEARCH, "beside --drafts"))
    require(models.target is not None, "--drafts ranks drafts of a target; give --target too")
    require(LOOKUP not in drafts, "--drafts ranks draft models, and lookup is not a model; leave lookup out")
    from dynatui.lab.commands.draft_ranking import ranking  # noqa: PLC0415
    from dynatui.lab.tuning.drafts import OnDrafts, rank  # noqa: PLC0415 - imports torch

    job = OnDrafts(str(models.target), drafts, prompts, run, models.device, models.dtype, models.draft_dtype)
    out, _ = streams.for_printing()
    try:
        with streams.results_only():
            results = rank(job, say_line, shown)
    except KeyboardInterrupt:
        streams.say("interrupted while some drafts had no measurement yet, so the drafts cannot be compared")
        return INTERRUPTED
    streams.show(ranking(results), out)
    return 0


def _searched(job: "OnPrompts", name: str, *, force: bool) -> int:
    from dynatui.lab.commands import tune_report as report  # noqa: PLC0415 - imports rich
    from dynatui.lab.tuning.job import tuned  # noqa: PLC0415 - imports torch

    searching = ended = False

    def watch(progress: "TuneProgress") -> None:
        nonlocal searching
        searching = not progress.checking
        show(progress)

    def stop(number: int) -> None:
        """Handles the first signal: Ctrl-C during the search ends the search; any other signal ends the program."""
        nonlocal ended
        if number != SIGINT or not searching:
            raise KeyboardInterrupt
        ended = True

    try:
        with stoppable(stop), streams.results_only(), report.watching() as show:
            result = tuned(job, streams.say, watch, lambda: ended)
    except KeyboardInterrupt:
        streams.say("interrupted; nothing was written")
        return INTERRUPTED
    out, _ = streams.for_printing()
    try:
        kept = _kept(result, name, report.comments(result), force=force)
    finally:  # the report is printed even if the preset cannot be written
        streams.show(report.text(result, name), out)
    if kept:
        streams.say(f"{kept} is written; dynatui --preset {name} uses it")
    return 0


def _kept(result: "Tuned", name: str, comments: Sequence[str], *, force: bool) -> Path | None:
    if not result.verdict.keeps:
        return None
    with handled(INTERRUPTING, lambda *_: None):  # no signal can interrupt the write
        return presets.write_preset(name, result.run, comments, force=force)

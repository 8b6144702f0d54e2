"""`dynatui tune`: searches for the fastest knobs for a user's prompts on this machine, and writes them as a preset.

The search and its verdict are in `dynatui.lab.tuning`. Imports torch only when a search begins.
"""

from collections.abc import Sequence
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING

import typer
from typer.core import TyperCommand

from decoder.models.names import LOOKUP, require_both
from dynatui.cli import options, parameters, presets, request, settings
from dynatui.cli.headless import INTERRUPTED
from dynatui.cli.parameters import CONTEXT, Declared, Given, Group, in_panel, option, switch
from dynatui.lab.commands.number_lists import names
from dynatui.lab.commands.tune_drafts import ranked
from dynatui.session import Models
from dynatui.terminal import streams
from dynatui.terminal.shutdown import INTERRUPTING, handled, stoppable

if TYPE_CHECKING:
    from dynatui.lab.tuning.job import OnPrompts
    from dynatui.lab.tuning.outcome import Tuned, TuneProgress

LENGTH = 64
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
            parse=names,
        ),
        option("--minutes M", "Time for the search and for the check of its result, in minutes.", float, default=5.0),
        option("--max-new-tokens N", "Number of tokens to generate per text.", int, default=LENGTH, least=1),
        option("--name NAME", "Name of the preset, for dynatui --preset NAME.", default="mine"),
        switch("--force", "Replace a preset of the same name."),
        option("--storage URL", "Optuna database, such as sqlite:///tuning.db, from which a later search continues."),
    ),
    options.SEED,
    Group("sampling", options.SAMPLING_OPTIONS),
)


class _Search:
    """The phase of a tuning; Ctrl-C has a different effect in each phase."""

    running = False
    """Whether the search is in progress, rather than the check of its result."""
    ended = False
    """Whether Ctrl-C has ended the search."""

    def stop(self, number: int) -> None:
        """Handles the first signal: Ctrl-C during the search ends the search; any other signal ends the program."""
        if number != SIGINT or not self.running:
            raise KeyboardInterrupt
        self.ended = True


def command() -> TyperCommand:
    """The command `dynatui tune`."""
    return parameters.command("tune", tune, PARAMETERS, settings.fallback)


def tune(
    context: typer.Context,
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


def _searched(job: "OnPrompts", name: str, *, force: bool) -> int:
    """Runs the search, prints its report, and writes the preset if the verdict is to keep it."""
    from dynatui.lab.commands import tune_report as report  # noqa: PLC0415
    from dynatui.lab.commands.tune_screen import watching  # noqa: PLC0415 - imports rich
    from dynatui.lab.tuning.job import tuned  # noqa: PLC0415 - imports torch

    search = _Search()

    def watch(progress: "TuneProgress") -> None:
        search.running = not progress.checking
        show(progress)

    try:
        with stoppable(search.stop), streams.results_only(), watching() as show:
            result = tuned(job, streams.say, watch, lambda: search.ended)
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
    """Writes the preset and returns its path; None if the verdict is not to keep the preset."""
    if not result.verdict.keeps:
        return None
    with handled(INTERRUPTING, lambda *_: None):  # no signal can interrupt the write
        return presets.write(name, result.run, comments, force=force)

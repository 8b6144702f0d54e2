"""`dynatui tune`: searches for the fastest knobs for a user's prompts on this machine, and writes them as a preset. The
search and verdict are in `dynatui.lab.tuning`. Imports torch only when needed.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING

from decoder.errors import require
from decoder.models.names import require_both
from dynatui.cli import options, parameters, request, settings
from dynatui.cli.headless import INTERRUPTED
from dynatui.cli.parameters import Command, Declared, Given, OptionGroup, in_panel, option, switch
from dynatui.lab.commands.shared import say_line, shown
from dynatui.session import Models
from dynatui.terminal import streams
from dynatui.terminal.shutdown import INTERRUPTING, handled, stoppable

if TYPE_CHECKING:
    from dynatui.lab.tuning.job import OnPrompts
    from dynatui.lab.tuning.outcome import Tuned

TUNING = "Tuning"
PARAMETERS: Declared = (
    request.MODELS,
    request.PROMPTS,
    options.CHAT,
    *in_panel(
        TUNING,
        option("--minutes M", "Time for the search and for the check of its result, in minutes.", float, default=5.0),
        option("--max-new-tokens N", "Number of tokens to generate per text.", int, default=64, least=1),
        option("--name NAME", "Name of the preset, for dynatui --preset NAME.", default="mine"),
        switch("--force", "Replace a preset of the same name."),
        option("--storage URL", "Optuna database, such as sqlite:///tuning.db, from which a later search continues."),
    ),
    options.SEED,
    OptionGroup("sampling", options.SAMPLING_OPTIONS),
)


def command() -> Command:
    return parameters.command("tune", tune, PARAMETERS, settings.fallback)


def tune(
    *,
    models: Models,
    prompts: request.Prompts,
    chat: bool | None,
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
    require_both(models.target, models.draft)
    texts = prompts.read(chat)
    run = request.run_config({**sampling, "max_new_tokens": max_new_tokens, "seed": seed, "chat": chat})
    settings.prepare_preset(name, force=force)
    _require_optuna()
    from dynatui.lab.commands import tune_report as report  # noqa: PLC0415 - imports the methods
    from dynatui.lab.tuning.job import OnPrompts  # noqa: PLC0415 - imports torch

    try:
        result = _tuned(OnPrompts(models, texts, run, minutes, storage))
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


def _require_optuna() -> None:
    for name, module in (("optuna", "optuna"), ("scikit-learn", "sklearn")):
        installed = find_spec(module) is not None
        require(installed, f"tuning needs {name}, which is not installed; pip install 'dynatui[bench]'")


def _tuned(job: "OnPrompts") -> "Tuned":
    """Searches and checks settings; raises KeyboardInterrupt after a signal, except for Ctrl-C during the search."""
    from dynatui.lab.tuning.job import opened  # noqa: PLC0415 - imports torch and Optuna

    searching = ended = False

    def stop(number: int) -> None:
        nonlocal ended
        if number != SIGINT or not searching:
            raise KeyboardInterrupt
        ended = True

    with stoppable(stop), streams.results_only(), opened(job, say_line) as tuning:
        say_line("searching; Ctrl-C ends the search and begins the check, twice: quits, and nothing is written")
        searching = True
        for _ in shown(tuning.searching(lambda: ended)):
            pass
        searching = False
        for _ in shown(tuning.checking()):
            pass
        return tuning.result()


def _kept(result: "Tuned", name: str, comments: Sequence[str], *, force: bool) -> Path | None:
    if not result.checked.keeps():
        return None
    with handled(INTERRUPTING, lambda *_: None):  # no signal can interrupt the write
        return settings.write_preset(name, result.run, comments, force=force)

"""`dynatui tune --drafts`: ranks drafts instead of searching for knobs."""

import typer

from decoder.errors import require
from decoder.models.names import LOOKUP
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from dynatui.cli import settings
from dynatui.cli.headless import INTERRUPTED
from dynatui.lab.commands.bench_result import say_line, shown
from dynatui.session import Models
from dynatui.terminal import streams

OF_THE_SEARCH = ("draft", "exact", "compiled", "kernels", "minutes", "name", "force", "storage")
"""Parameters that have no effect when drafts are ranked."""


def ranked(
    context: typer.Context, drafts: tuple[str, ...], models: Models, prompts: tuple[AnyPrompt, ...], run: RunConfig
) -> int:
    """Ranks drafts, and prints the ranking.

    Raises:
        DecoderError: No target is given, an option has no effect beside --drafts, or no draft can be ranked.
    """
    settings.refuse(context, dict.fromkeys(OF_THE_SEARCH, "beside --drafts"))
    require(models.target is not None, "--drafts ranks drafts of a target; give --target too")
    require(LOOKUP not in drafts, "--drafts ranks draft models, and lookup is not a model; leave lookup out")
    from dynatui.lab.commands.draft_ranking import ranking  # noqa: PLC0415
    from dynatui.lab.tuning.drafts import OnDrafts, rank  # noqa: PLC0415 - imports torch

    job = OnDrafts(
        str(models.target),
        drafts,
        prompts,
        run,
        models.device,
        models.dtype,
        models.draft_dtype,
    )
    out, _ = streams.for_printing()
    try:
        with streams.results_only():
            results = rank(job, say_line, shown)
    except KeyboardInterrupt:
        streams.say("interrupted while some drafts had no measurement yet, so the drafts cannot be compared")
        return INTERRUPTED
    streams.show(ranking(results), out)
    return 0

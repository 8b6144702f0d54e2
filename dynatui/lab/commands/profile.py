"""`dynatui profile`: measures the acceptance of drafts on a user's prompts, and writes a file for `dynatui advise` and
`dynatui attach --expect`. Imports torch only when a measurement begins.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from decoder.analysis.interval import Interval
from decoder.errors import require
from decoder.models.names import LOOKUP
from dynatui.clean import clean_line
from dynatui.cli import options, parameters, request, settings
from dynatui.cli.advise import seconds, step_time
from dynatui.cli.parameters import Command, Declared, Given, OptionGroup, in_panel, option, switch
from dynatui.lab.commands.shared import Measured, names, run_and_report, say_line, shown
from dynatui.lab.tables import Column, Spec, Table, cut, hundredths, interval, of_rows, text, wrapped
from dynatui.number_format import counted
from dynatui.servers.profile_file import Acceptance, DraftProfile, Profile, write_profile
from dynatui.terminal import streams

NAME = 22
SHOWN = (1, 2, 3, 4, 8)
"""Positions in a chain, counted from 1, whose survival rates are printed."""
LENGTHS = (3, 8)
"""Lengths K of chains for which L(K), the mean number of tokens per round, is printed."""
SCORED_TOKENS = 128
_OF_PAIR = ("target", "device", "dtype", "draft_dtype")
PROFILE = "Profile"
COSTS = "Costs of the server"


PARAMETERS: Declared = (
    OptionGroup("models", [each for each in options.MODEL_OPTIONS if each.name in _OF_PAIR]),
    request.PROMPTS,
    options.CHAT,
    *in_panel(
        PROFILE,
        option(
            "--drafts ID|DIR|lookup|mtp,..",
            "Drafts to profile, with commas between them. Default: lookup; without --target, the embedded draft.",
            parse=names,
        ),
        option(
            "--output FILE",
            "File of the profile; until it is complete, FILE.log keeps what is measured.",
            Path,
            required=True,
        ),
        option(
            "--max-new-tokens N",
            "Tokens of each text: those that the target writes, or the first of a given answer.",
            int,
            default=SCORED_TOKENS,
            least=1,
        ),
        switch(
            "--answers/--no-answers",
            "Whether a conversation's answer, where there is one, is scored in place of a text of the target.",
            default=True,
        ),
    ),
    *in_panel(
        COSTS,
        option("--step-ms MS", "Time of a step of the server without a draft, in milliseconds.", parse=step_time),
        option(
            "--draft-ms MS,..",
            "Beside --step-ms: time of a pass of each of --drafts but lookup.",
            parse=partial(seconds, "--draft-ms"),
        ),
        option(
            "--roofline DEVICE|GB/S,TFLOPS",
            "Take the least times of a device, such as H100, from its data sheet.",
        ),
    ),
    options.SEED,
    OptionGroup("sampling", options.SAMPLING_OPTIONS),
)


def command() -> Command:
    return parameters.command("profile", profile, PARAMETERS, settings.fallback)


def profile(
    *,
    models: Given,
    prompts: request.Prompts,
    chat: bool | None,
    drafts: tuple[str, ...] | None,
    output: Path,
    max_new_tokens: int,
    answers: bool,
    step_ms: float | None,
    draft_ms: tuple[float, ...] | None,
    roofline: str | None,
    seed: int,
    sampling: Given,
) -> int:
    """Measure how many tokens of each draft the target accepts on your prompts, as servers count it.

    One chain of 16 drafted tokens at every position of every text gives the survival rates of all chain lengths, with
    intervals over prompts. Ctrl-C ends early and writes the profile so far; the same command resumes.
    """
    files = prompts.of_files()
    for note in request.notes(files, chat):
        streams.say(note)
    texts = prompts.beside(files)
    given = [answer for file in files for answer in file.answers or ("",) * len(file.prompts)] if answers else []
    run = request.run_config({**sampling, "max_new_tokens": max_new_tokens, "seed": seed, "chat": chat})
    embedded = models["target"] is None
    require(not embedded or drafts is None, "--drafts are those of a target; give --target too", "target")
    from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET  # noqa: PLC0415 - imports torch
    from dynatui.cli.advise import named_device  # noqa: PLC0415 - needed only with --roofline
    from dynatui.lab.tuning.profiling import OnServer, log_of, profiled  # noqa: PLC0415 - imports torch

    chosen = (str(EMBEDDED_DRAFT),) if embedded else (LOOKUP,) if drafts is None else drafts
    timed = [name for name in chosen if name != LOOKUP]
    wanted = f"{counted(len(timed), 'time')}, one for each of {', '.join(timed) or 'none'}"
    require(step_ms is None or len(draft_ms or ()) == len(timed), f"--step-ms needs --draft-ms with {wanted}")
    require(step_ms is not None or draft_ms is None, "--draft-ms has no effect without --step-ms; give both")
    require(step_ms is None or roofline is None, "--step-ms and --roofline both give the costs; leave one of them out")
    job = OnServer(
        **{**models, "target": str(EMBEDDED_TARGET) if embedded else models["target"]},
        drafts=chosen,
        prompts=texts,
        config=run,
        answers=(*given, *("",) * (len(texts) - len(given))),
        step_s=step_ms,
        draft_s=draft_ms or (),
        roofline=named_device(roofline) if roofline else None,
    )

    def measure() -> Measured:
        done = profiled(job, output, say_line, shown)

        def keep() -> None:
            write_profile(output, done.report)
            if not done.interrupted:
                log_of(output).unlink(missing_ok=True)

        return Measured(report(done.report, output, complete=not done.interrupted), done, keep)

    return run_and_report(measure, None)


def report(results: Profile, output: Path, *, complete: bool) -> str:
    kept = "this profile" if complete else "the prompts so far; the same command goes on"
    heat = f"T = {results.temperature:g}" if results.temperature else "greedy"
    answers = f", {counted(results.answers, 'answer')} given" if results.answers else ""
    lines = [
        *wrapped(f"{clean_line(results.size.name)} in {results.dtype}, {heat}"),
        f"prompts: {results.prompts}{answers}; tokens: {results.tokens}; 95 % bootstrap intervals over prompts",
        "",
        text(_table(results)),
        "",
        *wrapped(f"{_costs(results)} {output} holds {kept}."),
    ]
    return "\n".join(lines) + "\n"


def _table(results: Profile) -> Table:
    def rate(position: int) -> Spec[tuple[str, Acceptance]]:
        return Column(f"s{position}", "number", 2, 5), lambda row: dict(enumerate(row[1].survival, 1)).get(position)

    def length(k: int) -> Spec[tuple[str, Acceptance]]:
        return Column(f"L({k})", width=16), lambda row: interval(_length(row[1], k), hundredths)

    specs: list[Spec[tuple[str, Acceptance]]] = [
        (Column("draft", width=NAME), lambda row: cut(row[0], NAME)),
        *map(rate, SHOWN),
        *map(length, LENGTHS),
    ]
    rows = [row for name, draft in results.drafts.items() for row in _rows(name, draft)]
    notes = wrapped(
        f"s1, s2, ...: share of rounds with chains of {max(draft.longest for draft in results.drafts.values())} whose "
        "first 1, 2, ... drafted tokens were all accepted; L(K): tokens a round with chains of K."
    )
    refused = [line for name, why in results.draft_errors.items() for line in wrapped(f"{clean_line(name)}: {why}")]
    return of_rows(specs, rows, notes=[*notes, *refused])


def _rows(name: str, draft: DraftProfile) -> Iterator[tuple[str, Acceptance]]:
    yield clean_line(Path(name).name if Path(name).is_dir() else name), draft
    for category, own in draft.by_category.items():
        yield f"  {clean_line(category)}", own
    if len(draft.by_context) > 1:
        for context, own in draft.by_context.items():
            yield f"  {clean_line(context)} tokens before", own
    if draft.probabilistic:
        yield "  drawn from the draft", draft.probabilistic


def _length(acceptance: Acceptance, k: int) -> Interval | None:
    if k > acceptance.longest:
        return None
    chain = acceptance.at(k)
    low, high = chain.length_interval or (None, None)
    return Interval(value=chain.mean_length, low=low, high=high)


def _costs(results: Profile) -> str:
    costs = results.costs
    if costs is None:
        return ""
    sources = {
        "given": "as given",
        "measured": f"measured here on {costs.device}",
        "roofline": f"the least of {costs.device}",
    }
    return f"Costs of passes: {sources[costs.source]}."

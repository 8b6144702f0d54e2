"""The command line; prints any DecoderError in one line. Help, version and replay never import torch."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import click

import decoder
from decoder.errors import (
    ConfigError,
    DecoderError,
    about,
    lacks_temporary_folder,
    not_importable,
    of_system,
    with_short_quotes,
)
from decoder.methods import require_model_free
from decoder.methods.delayed import NONE
from decoder.models.names import LOOKUP, MTP, require_both
from decoder.run.config import RunConfig
from dynatui.cli import (
    advise,
    attach,
    config,
    doctor,
    headless,
    options,
    parameters,
    ranks,
    report,
    request,
    settings,
)
from dynatui.cli import why as reasons
from dynatui.cli.parameters import CONTEXT, Declared, Given, OptionGroup, argument, option, switch
from dynatui.record.comparison import comparison
from dynatui.record.reader import Runs, is_of_server
from dynatui.record.transcript import Transcript
from dynatui.session import DEMO, EMBEDDED_SEED, EMBEDDED_TEMPERATURE, Models, Session, View
from dynatui.terminal import streams

USAGE_ERROR = DecoderError.exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        return _invoked(arguments)
    except click.ClickException as error:
        return _refused(_misused(error), USAGE_ERROR)
    except DecoderError as error:
        if isinstance(error, streams.OutputError):
            streams.discard_output()
        return _refused(settings.with_places(error), error.exit_code)
    except streams.ReaderLeftError:
        streams.discard_output()
        return 0
    except OSError as error:
        limit = of_system(error)
        if limit is None:
            raise
        streams.discard_output()
        return _refused(str(limit), limit.exit_code)
    except (KeyboardInterrupt, click.Abort):
        streams.discard_output()  # the buffer may still hold a part of the interrupted write
        return headless.INTERRUPTED


def command() -> parameters.Group:
    configured = settings.fallback
    commands: list[click.Command] = [
        parameters.command("replay", replay, REPLAY, configured),
        parameters.command("config", config.config, config.PARAMETERS),
        parameters.command("doctor", doctor.doctor, doctor.PARAMETERS),
        parameters.command("why", reasons.why, reasons.PARAMETERS),
        parameters.command("report", report.report, report.PARAMETERS),
        parameters.command("attach", attach.attach, attach.PARAMETERS, configured),
        parameters.command("advise", advise.advise, advise.PARAMETERS),
    ]
    if find_spec("dynatui.lab") is not None:
        from dynatui.lab.commands import bench, profile, selector, tune  # noqa: PLC0415 - the laboratory may be missing

        commands += profile.command(), tune.command(), bench.command(), selector.command()
    return parameters.group("", watch, live_parameters(), commands, configured, invoke_without_command=True)


def _invoked(arguments: Sequence[str] | None) -> int:
    try:
        if any("\0" in argument for argument in arguments or ()):  # only a Python caller can pass a null character
            raise ConfigError("an argument holds a null character; leave the character out")
        given = sys.argv[1:] if arguments is None else list(arguments)
        return int(command().main(args=given, prog_name="dynatui", standalone_mode=False) or 0)
    except ImportError as error:
        raise not_importable(error) from error
    except FileNotFoundError as error:
        if lacks_temporary_folder(error):
            raise not_importable(error) from error
        raise
    except SystemExit as leaving:
        if leaving.code == 1:  # click has printed help, and the reader of the output pipe has closed it
            raise streams.ReaderLeftError from None
        raise


def _misused(error: click.ClickException) -> str:
    context: Any = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "dynatui")
    message = with_short_quotes(error.format_message().rstrip(".").replace(". (", " ("))
    meant = isinstance(error, click.exceptions.NoSuchCommand) and context.parent is None and not error.possibilities
    if message.endswith("?"):
        return f"{message} See {path} --help"
    return f"{message}; {_PROMPTS if meant else ''}see {path} --help"


_PROMPTS = "give a prompt with --prompt TEXT, or a file of prompts with --prompt-file FILE; "
"""Remedy for a word that resembles no command: it may be meant as a prompt."""


def _show_version(context: click.Context, _option: Any, wanted: bool) -> None:  # noqa: FBT001 - click's order
    if wanted:
        click.echo(f"dynatui {decoder.__version__}")
        context.exit()


_VERSION = switch("--version", "Show the version and exit.", is_eager=True, expose_value=False, callback=_show_version)
_RECORD = option("--record FILE", "Append all events to FILE as they happen.", Path, panel=options.RUN)
_METRICS_PORT = option(
    "--metrics-port PORT",
    "Serve the counts of the run to Prometheus at http://127.0.0.1:PORT/metrics, under the names of vLLM's "
    "metrics. 0: any free port.",
    int,
    least=0,
    most=65535,
    panel=options.RUN,
)
_FOLLOW = option(
    "--follow FILE", "Instead of decoding, watch a recording that another process is writing.", Path, panel=options.RUN
)
_TOUR = switch(
    "--tour/--no-tour",
    "Whether the second round is shown slowly, stage by stage, if no prompt, model or recording is given.",
    default=True,
    panel=options.SCREEN,
)
_OTHER = argument("other", "OTHER", "Another recording, to be shown beside the first.", Path, required=False)
REPLAY: Declared = (options.RECORDING, _OTHER, options.HEADLESS, options.JSON, OptionGroup("view", options.REPLAY_VIEW))


def live_parameters() -> Declared:
    return (
        CONTEXT,
        request.MODELS,
        request.PROMPTS,
        OptionGroup("run", (options.CHAT, options.methods(), options.MAX_NEW_TOKENS, options.LIVE_SEED)),
        _RECORD,
        _METRICS_PORT,
        _FOLLOW,
        OptionGroup("rules", tuple(options.rules(settings.preset_names))),
        options.HEADLESS,
        options.JSON,
        _TOUR,
        OptionGroup("view", options.LIVE_VIEW),
        _VERSION,
        *parameters.completion(),
    )


def watch(
    context: click.Context,
    *,
    models: Models,
    prompts: request.Prompts,
    run: Given,
    record: Path | None,
    metrics_port: int | None,
    follow: Path | None,
    rules: Given,
    no_screen: bool,
    as_json: bool,
    tour: bool,
    view: Given,
) -> int:
    """Watch and steer speculative decoding of language models, live, in a terminal.

    Without options, five methods race each other on the embedded prompts, all with the embedded pair of models. The
    screen then draws larger trees than are fastest. Without a terminal, the race runs without a screen.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        # `bench` makes this check itself, since of its commands only `bench speed` may run in several processes.
        if context.invoked_subcommand != "bench":
            ranks.require_alone(f"dynatui {context.invoked_subcommand}")
        return 0
    shown = request.view(view, settings.keymap())
    wants_screen = not (no_screen or as_json)
    if follow is None:
        ranks.join(models)
    else:
        _refuse_options_beside_follow(context)
        on_screen = wants_screen and streams.can_show_screen()
        return _follow(follow, shown, Transcript(*streams.for_printing(), as_json=as_json), on_screen=on_screen)
    files = prompts.of_files()
    require_both(models.target, models.draft)
    # `can_show_screen` may replace standard input, so the prompts must have been read before.
    on_screen = wants_screen and streams.can_show_screen()
    given = {**rules, **run}
    # A settings file may hold all defaults, as `dynatui config` prints them, so only typed options count as chosen.
    typed = rules.keys() & settings.typed(context).keys()
    chosen = prompts.given or typed or any(given[name] is not None for name in ("preset", "temperature", "seed"))
    if on_screen and models.embedded:
        usual = {"temperature": EMBEDDED_TEMPERATURE, "seed": EMBEDDED_SEED}
        given |= {name: value for name, value in usual.items() if given[name] is None}
    if on_screen and not models.embedded and given["selector"] is None and given["drafting"] is None:
        given["selector"] = NONE  # the shipped selector is made for the embedded pair only
    config = request.run_config(given)
    usual_config = RunConfig(seed=EMBEDDED_SEED, temperature=EMBEDDED_TEMPERATURE)
    if on_screen and models == Models() and not chosen and config == usual_config:
        config = config.with_rules("dynatree", DEMO)
    newcomer = tour and models.embedded and not (prompts.given or record)
    session = Session(
        prompts=prompts.beside(files),
        models=models,
        config=config,
        record=record,
        metrics_port=metrics_port,
        view=replace(shown, tour=newcomer),
        files=tuple((file.name, file.prompts) for file in files),
        prompt_field=prompts.prompt_field,
        notes=request.notes(files, run["chat"]),
        set_for_good=frozenset(settings.read_settings(context.command)),
    )
    if models.draft in (LOOKUP, MTP):
        require_model_free(session.config.methods)
    if not on_screen:
        from dynatui.sources.engine import load_engine  # noqa: PLC0415 - not needed for help and replay

        return headless.run(session, Transcript(*streams.for_printing(), as_json=as_json), load_engine(session))
    from dynatui.screen.run import watch as watch_on_screen  # noqa: PLC0415 - imports textual

    return watch_on_screen(session)


def replay(path: Path, other: Path | None, *, no_screen: bool, as_json: bool, view: Given) -> int:
    """Replay a recording without loading models, or two recordings side by side.

    Without a screen, two recordings of the same prompts are compared: the exit code is 5 if a method is clearly slower
    in the second one, or writes another text.
    """
    if other is None and is_of_server(path):
        on_screen = not (no_screen or as_json) and streams.can_show_screen()
        return attach.replay_server(path, request.view(view, settings.keymap()), on_screen=on_screen)
    runs = Runs(path)
    on_screen = not (no_screen or as_json) and streams.can_show_screen()
    if other is not None and not on_screen:
        out, _ = streams.for_printing()
        return headless.compare(comparison((str(path), str(other)), runs, Runs(other)), out, as_json=as_json)
    if not on_screen:
        transcript = Transcript(*streams.for_printing(), as_json=as_json)
        return headless.replay_events(chain.from_iterable(runs), transcript)
    shown = request.view(view, settings.keymap())
    if other is not None:
        from dynatui.screen.run import compare  # noqa: PLC0415 - imports textual

        return compare((path, runs), (other, Runs(other)), shown)
    from dynatui.screen.run import show_replay as replay_on_screen  # noqa: PLC0415 - imports textual

    return replay_on_screen(runs, shown)


def _follow(path: Path, view: View, transcript: Transcript, *, on_screen: bool) -> int:
    with about("follow"):
        if on_screen:
            from dynatui.screen.run import follow as follow_on_screen  # noqa: PLC0415 - imports textual

            return follow_on_screen(path, view)
        from dynatui.sources.follow import events  # noqa: PLC0415 - needed only here

        return headless.follow(events(path, Event()), transcript)


def _refuse_options_beside_follow(context: click.Context) -> None:
    """Refuses options of decoding: the process that writes the recording has set their values."""
    known = settings.options_of(context.command).values()
    decoding = {option.name for option in known if option.panel in options.DECODING}
    with about("follow"):
        settings.refuse(context, dict.fromkeys(decoding - {"follow"}, "beside --follow, which decodes nothing"))


def _refuse_options_before(context: click.Context) -> None:
    """Refuses options before a subcommand: they belong to the live command and would have no effect."""
    subcommand = context.invoked_subcommand
    for given in settings.typed(context).values():
        remedy = f"see dynatui {subcommand} --help for the options to give after {subcommand}"
        raise ConfigError(f"{given.opts[0]} is given before {subcommand}, where it has no effect; {remedy}")


def _refused(why: str, code: int) -> int:
    streams.say(why)
    return code

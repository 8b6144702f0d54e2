"""The command line: turns arguments into a session, picks screen or no screen, and turns every error into one line.

Nothing heavy is imported before it is known to be needed: help, version and replay never see torch. This is the only
place that catches DecoderError for good.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import typer
from typer.main import get_command

import decoder
from decoder.config import PRESETS, DynaTree, Fixed, Linear, RunConfig
from decoder.errors import ConfigError, DecoderError
from decoder.methods import chosen
from dynatui import headless, options, recording, streams
from dynatui.prompts import load
from dynatui.session import Models, Session, Symbols, View
from dynatui.transcript import OutputError, ReaderLeftError, Transcript

USAGE_ERROR = DecoderError.exit_code

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    try:
        code = get_command(app).main(args=arguments, prog_name="dynatui", standalone_mode=False)
    except typer.TyperException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "dynatui")
        return _refused(f"{error.format_message().rstrip('.')}; see {command} --help", USAGE_ERROR)
    except DecoderError as error:
        if isinstance(error, OutputError):
            streams.let_go_of_output()
        return _refused(str(error), error.exit_code)
    except ReaderLeftError:
        streams.let_go_of_output()
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        streams.let_go_of_output()
        return _refused(f"cannot write: {error.strerror}; send the output to a place with free space", USAGE_ERROR)
    except (KeyboardInterrupt, typer.Abort):
        return headless.INTERRUPTED
    return int(code or 0)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if wanted:
        typer.echo(f"dynatui {decoder.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def watch(
    context: typer.Context,
    *,
    target: options.Target = None,
    draft: options.Draft = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    prompt_files: options.PromptFiles = None,
    prompt_texts: options.PromptTexts = None,
    methods: options.Methods = None,
    max_new_tokens: options.MaxNewTokens = None,
    seed: options.Seed = 0,
    record: options.Record = None,
    preset: options.Preset = "paper",
    history: options.History = None,
    tau_h: options.TauH = None,
    tau_l: options.TauL = None,
    d0: options.D0 = None,
    d_max: options.DMax = None,
    branching: options.Branching = None,
    rho_stop: options.RhoStop = None,
    rho_deep: options.RhoDeep = None,
    tau: options.Tau = None,
    n_max: options.NMax = None,
    selection: options.Selection = None,
    k: options.ChainLength = None,
    fixed: options.FixedTree = None,
    no_screen: options.Headless = False,
    as_json: options.Json = False,
    speed: options.LiveSpeed = None,
    fps: options.Fps = None,
    theme: options.Theme = None,
    symbols: options.SymbolSet = "braille",
    no_color: options.NoColor = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> int:
    """Watch and steer speculative decoding of language models, live, in a terminal.

    Without options: the embedded pair of models, prompts of ours, four methods in a race. Where there is no terminal,
    the same runs without a screen.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        return 0
    session = Session(
        prompts=_prompts(prompt_files or [], prompt_texts or []),
        models=Models(target, draft, device, dtype),
        config=RunConfig(
            dynatree=replace(
                _preset(preset),
                **_given(
                    d0=d0,
                    d_max=d_max,
                    branching=_numbers("--branching", branching, example="1,2,3"),
                    tau_h=tau_h,
                    tau_l=tau_l,
                    rho_stop=rho_stop,
                    rho_deep=rho_deep,
                    tau=tau,
                    n_max=n_max,
                    selection=selection,
                    history=history,
                ),
            ),
            linear=replace(Linear(), **_given(k=k)),
            fixed=replace(_fixed(fixed), **_given(tau=tau, n_max=n_max)),
            seed=seed,
            **_given(methods=_methods(methods), max_new_tokens=max_new_tokens),
        ),
        record=record,
        view=_view(speed, fps, theme, symbols, no_color=no_color),
    )
    if no_screen or as_json or not streams.can_show_screen():
        # Only naming these two imports the engine, and with it torch.
        return headless.run(session, _transcript(as_json=as_json), load_pair=decoder.load_pair, decode=decoder.decode)
    from dynatui.app import watch as watch_on_screen  # noqa: PLC0415 - imports textual

    return watch_on_screen(session)


@app.command()
def replay(
    path: options.RecordingFile,
    *,
    no_screen: options.Headless = False,
    as_json: options.Json = False,
    speed: options.ReplaySpeed = None,
    fps: options.Fps = None,
    theme: options.Theme = None,
    symbols: options.SymbolSet = "braille",
    no_color: options.NoColor = False,
) -> int:
    """Show a recording again, without models."""
    events = recording.read(path)
    if no_screen or as_json or not streams.can_show_screen():
        return headless.replay(events, _transcript(as_json=as_json))
    from dynatui.app import replay as replay_on_screen  # noqa: PLC0415 - imports textual

    return replay_on_screen(path, events, _view(speed, fps, theme, symbols, no_color=no_color))


def _refuse_options_before(context: typer.Context) -> None:
    """Options of a live run say nothing to a subcommand; those that it shares stand behind its name."""
    subcommand = context.invoked_subcommand
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError(
                f"{parameter.opts[0]} stands before {subcommand}, where it has no effect; "
                f"see dynatui {subcommand} --help for what may stand behind"
            )


def _prompts(files: list[str], texts: list[str]) -> tuple[str, ...]:
    given = tuple(prompt for name in files for prompt in load.from_file(name))
    return given + tuple(map(load.from_text, texts)) or load.embedded()


def _given(**values: object) -> dict[str, Any]:
    """Those options that were given; the others keep their defaults."""
    return {name: value for name, value in values.items() if value is not None}


def _preset(name: str) -> DynaTree:
    if name not in PRESETS:
        raise ConfigError(f"--preset is {name!r}; give one of {', '.join(PRESETS)}")
    return PRESETS[name]


def _methods(names: str | None) -> tuple[str, ...] | None:
    return (
        None if names is None else tuple(method.name for method in chosen([name.strip() for name in names.split(",")]))
    )


def _fixed(shape: str | None) -> Fixed:
    numbers = _numbers("--fixed", shape, example="5,2")
    return Fixed(depth=numbers[0], branching=numbers[1]) if numbers else Fixed()


def _numbers(option: str, text: str | None, *, example: str) -> tuple[int, ...] | None:
    """Whole numbers with commas between them, as many as the example has."""
    if text is None:
        return None
    parts = text.split(",")
    with suppress(ValueError):
        if len(parts) == len(example.split(",")):
            return tuple(map(int, parts))
    raise ConfigError(f"{option} is {text!r}; give {len(example.split(','))} whole numbers, for example {example}")


def _view(speed: float | None, fps: int | None, theme: str | None, symbols: Symbols, *, no_color: bool) -> View:
    return View(speed, fps, theme, symbols, color=not (no_color or os.environ.get("NO_COLOR")))


def _transcript(*, as_json: bool) -> Transcript:
    out, err = streams.for_printing()
    return Transcript(out, err, as_json=as_json)


def _refused(why: str, code: int) -> int:
    streams.say(why)
    return code

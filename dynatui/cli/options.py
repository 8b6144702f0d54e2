"""Declares the options that several commands share: name, type, help text and panel of `--help`.

The options of methods come from the method registry. The meaning of a value is decided where it is used. An option that
was not given is None, so that each default is defined in one place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args

from typer import Argument, Option

from decoder.errors import ConfigError, quoted
from decoder.methods import METHODS, options_of, racing
from decoder.methods.option import Option as MethodOption
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING
from dynatui.session import EMBEDDED_SEED, EMBEDDED_TEMPERATURE, Models, Symbols, View

MODELS = "Models"
PROMPTS = "Prompts"
RUN = "Run"
TREE = "DynaTree's knobs and those of other methods"
OUTPUT = "Without a screen"
SCREEN = "Screen"
DECODING = frozenset({MODELS, PROMPTS, RUN, TREE})
"""Panels of `--help` whose options determine the decoding."""
_SLOWEST = 0.001

Given = Mapping[str, Any]
"""Values of options by parameter name; None for an option that was not given."""


@dataclass(frozen=True)
class Group:
    """Options whose values together make one argument of a command."""

    options: Sequence[Parameter]
    make: Callable[..., Any] = dict
    """Function from the options' values, each a keyword argument, to the argument of the command."""


Declared = Mapping[str, Group | Parameter]
"""Options, or groups of options, for some arguments of a command, by argument name."""


_model, _prompt, _run, _output, _screen = (
    partial(Option, rich_help_panel=panel) for panel in (MODELS, PROMPTS, RUN, OUTPUT, SCREEN)
)


def parameter(name: str, kind: Any, option: Any, default: object = None) -> Parameter:
    """An option as a parameter of a command's signature."""
    annotated: Any = Annotated
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotated[kind, option])


def _speed(fastest: float, text: str) -> float:
    """The playback speed, parsed from a number or a fraction such as 1/2; raises ConfigError if it is out of bounds."""
    above, over, below = str(text).removesuffix("x").partition("/")
    try:
        speed = float(above) / (float(below) if over else 1)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"--speed is {quoted(text)}; give a number, or a fraction such as 1/2") from None
    if not _SLOWEST <= speed <= fastest:
        raise ConfigError(f"--speed is {quoted(text)}; give {_SLOWEST} to {fastest:g}")
    return speed


def _speed_option(fastest: float, explained: str) -> Any:
    return _screen("--speed", metavar="X", parser=partial(_speed, fastest), help=explained)


PROMPT_OPTIONS = (
    parameter(
        "prompt_files",
        list[str] | None,
        _prompt(
            "--prompt-file",
            metavar="FILE",
            help="A text file, a .jsonl file with a prompt a line, or - for standard input. May be repeated.",
        ),
    ),
    parameter(
        "prompt_texts",
        list[str] | None,
        _prompt("--prompt", metavar="TEXT", help="The prompt itself. May be repeated."),
    ),
)
"""Options that give prompts; their values make a `request.Prompts`."""
CUT_PROMPT_OPTIONS = (
    *PROMPT_OPTIONS,
    parameter(
        "prompt_chars", int | None, _prompt(metavar="N", min=1, help="Only the first N characters of each prompt.")
    ),
)
"""Options that give prompts, for commands that can also cut each prompt."""
Chat = Annotated[
    bool | None,
    _prompt(
        "--chat/--no-chat",
        show_default="no-chat",
        help="Wrap each prompt in the chat template of the target's tokenizer.",
    ),
]
MaxNewTokens = Annotated[
    int | None,
    _run(
        metavar="N",
        help="Maximum number of tokens to generate for a prompt.",
        show_default=str(RunConfig().max_new_tokens),
    ),
]
Seed = Annotated[int, _run(metavar="S", min=0, max=2**32 - 1, help="Seed of everything that is random.")]
OptionalSeed = Annotated[
    int | None,
    _run(
        metavar="S",
        min=0,
        max=2**32 - 1,
        help=f"Seed of everything that is random. Default 0; {EMBEDDED_SEED} for the embedded pair on the screen.",
    ),
]
Record = Annotated[
    Path | None,
    _run(metavar="FILE", help="Append all events to FILE as they happen."),
]
MetricsPort = Annotated[
    int | None,
    _run(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve the counts of the run to Prometheus at http://127.0.0.1:PORT/metrics, under the names of vLLM's "
        "metrics. 0: any free port.",
    ),
]
Follow = Annotated[
    Path | None, _run(metavar="FILE", help="Watch a recording that another process is writing, instead of decoding.")
]
Headless = Annotated[
    bool, _output("--headless", help="No screen: text on standard output, progress on standard error.")
]
Json = Annotated[bool, _output("--json", help="No screen: one JSON object a prompt on standard output.")]
LogFile = Annotated[
    Path | None,
    _screen(
        "--log-file",
        metavar="FILE",
        help="File for messages of libraries and errors, instead of the default in the user's log folder.",
    ),
]
DoctorJson = Annotated[bool, Option("--json", help="One JSON object instead of lines.")]
ShowPath = Annotated[bool, Option("--path", help="Print only the path of the settings file, which may not exist.")]
ShowDefault = Annotated[
    bool, Option("--print-default", help="Print a template of the settings file, with every line explained.")
]
RecordingFile = Annotated[Path, Argument(metavar="FILE", help="A file that --record has written.")]
OtherRecordingFile = Annotated[
    Path | None, Argument(metavar="OTHER", help="Another recording, to be shown beside the first.", show_default=False)
]

TensorParallel = Annotated[
    int,
    _model(
        "--tensor-parallel",
        metavar="N",
        min=1,
        max=1024,
        help="Spread the target over N processes, each with a GPU of its own; torchrun may have started them.",
    ),
]

MODEL_OPTIONS = (
    parameter("target", str | None, _model(metavar="ID|DIR", help="Target model: a Hugging Face id or a folder.")),
    parameter(
        "draft",
        str | None,
        _model(
            metavar="ID|DIR|lookup",
            help="Draft model, best with the target's tokenizer; lookup: no model, drafts are copied from "
            "earlier in the text.",
        ),
    ),
    parameter(
        "device",
        str,
        _model(metavar="NAME", autocompletion=lambda: ["auto", "cpu", "cuda"], help="auto, cpu, cuda or cuda:N."),
        Models.device,
    ),
    parameter(
        "dtype",
        str,
        _model(
            metavar="NAME",
            autocompletion=lambda: ["auto", "float32", "bfloat16", "float16"],
            help="auto, float32, bfloat16 or float16. auto: the checkpoint's on CUDA, bfloat16 on a CPU that has it.",
        ),
        Models.dtype,
    ),
    parameter(
        "draft_dtype",
        str,
        _model(
            metavar="NAME",
            autocompletion=lambda: ["auto", "float32", "bfloat16", "float16"],
            help="The draft's dtype; auto: the target's. Half precision drafts faster, and the target still decides.",
        ),
        Models.draft_dtype,
    ),
    parameter(
        "exact",
        bool,
        _model(
            "--exact/--no-exact",
            help="Batch-invariant: compute each token bit-identically in all methods, also in bfloat16 "
            "and float16. Slower. Only hf, which runs the model by itself, may still differ at "
            "a near tie.",
        ),
        Models.exact,
    ),
    parameter(
        "compiled",
        bool,
        _model(
            "--compile/--no-compile",
            help="For CUDA: try torch.compile on the passes of both models and keep what is faster. Delays the start.",
        ),
        Models.compiled,
    ),
)
"""Options for the model pair with its device and dtypes; their values make a `Models`."""
PAIR_OPTIONS = MODEL_OPTIONS[:5]
"""The same options without `exact` and `compiled`; their values make an `OnPair`."""
LIVE_SPEED = _speed_option(1, "1: as fast as the machine; 0.5 or 1/2: half as fast.")
REPLAY_SPEED = _speed_option(1000, "1: as fast as it was recorded; 2: twice, 1/2: half as fast.")


def view(speed: Any) -> tuple[Parameter, ...]:
    """The options for the screen, from whose values `request.view` makes a view; `speed` is the option --speed."""
    return (
        parameter("speed", float | None, speed),
        parameter("fps", int | None, _screen(metavar="N", min=1, max=60, help="Frames a second. Over SSH 5, else 10.")),
        parameter("theme", str | None, _screen(metavar="NAME", help="A theme of Textual.")),
        parameter(
            "symbols",
            Symbols,
            _screen(metavar="|".join(get_args(Symbols)), help="Characters with which curves and lines are drawn."),
            View.symbols,
        ),
        parameter(
            "no_color",
            bool,
            _screen("--no-color", help="No colours, as with NO_COLOR in the environment."),
            default=False,
        ),
        parameter(
            "mouse",
            bool,
            _screen(
                "--mouse/--no-mouse",
                help="Whether mouse clicks and the wheel control the screen; otherwise the terminal can "
                "select and copy.",
            ),
            View.mouse,
        ),
        Parameter("log", Parameter.KEYWORD_ONLY, default=None, annotation=LogFile),
    )


Tour = Annotated[
    bool,
    _screen(
        "--tour/--no-tour",
        help="Whether the second round is shown slowly, stage by stage, where no prompt, model or recording is given.",
    ),
]


def of_methods() -> list[MethodOption]:
    """The options of all methods, in the order in which the help lists them."""
    return sorted((option for method in METHODS.values() for option in method.options), key=lambda option: option.rank)


def rules(more: Callable[[str], Sequence[str]] = lambda _: ()) -> Iterator[Parameter]:
    """The options of sampling and of all methods; `more` gives further shell completions for an option by its name."""
    for option in options_of(SAMPLING):
        usual = f" Default 0; {EMBEDDED_TEMPERATURE:g} for the embedded pair on the screen."
        yield declared(replace(option, help=option.help + usual * (option.name == "temperature")), RUN)
    for option in of_methods():
        own = " Or one of your own, which dynatui tune writes." * (option.name == "preset")
        yield declared(replace(option, help=option.help + own), TREE, partial(more, option.name))


def instead(name: str, value: object) -> str | None:
    """Remedy for an option's value that has the wrong type; None if none is known."""
    option = next((option for option in of_methods() if option.name == name), None)
    return option.instead.get(value) if option and isinstance(value, str) else None


def declared(option: MethodOption, panel: str, more: Callable[[], Sequence[str]] = tuple) -> Parameter:
    """A method's option as a parameter of a command; `more` gives shell completions beyond the option's choices."""
    flags = f"{option.flag}/--no-{option.flag.removeprefix('--')}" if option.kind is bool else option.flag
    shown = Option(
        flags,
        metavar=option.metavar or None,
        rich_help_panel=panel,
        help=option.help,
        autocompletion=(lambda: [*option.choices, *more()]) if option.choices else None,
        parser=partial(_whole_number, option) if option.instead else None,
    )
    kind = option.kind | None if option.default is None else option.kind
    return parameter(option.name, kind, shown, option.default)


SAMPLING_OPTIONS = tuple(declared(option, RUN) for option in options_of(SAMPLING))


def methods() -> Parameter:
    """The option that names the methods of a race."""
    shown = Option(
        metavar="NAMES",
        rich_help_panel=RUN,
        autocompletion=_names,
        help=f"The methods that race, of {', '.join(METHODS)}; the first is the one that is watched.",
        show_default=", ".join(racing()),
    )
    return parameter("methods", str | None, shown)


def expanded(command: Callable[..., int], options: Declared) -> Callable[..., int]:
    """A command with some of its parameters replaced by options.

    Args:
        command: The function to call with the values of options, and with the arguments that groups make from theirs.
        options: The option or the group that replaces a parameter, by the parameter's name.
    """
    groups = {name: each for name, each in options.items() if isinstance(each, Group)}

    def declarations(own: Parameter) -> Sequence[Parameter]:
        declared = options.get(own.name, own)
        return declared.options if isinstance(declared, Group) else (declared,)

    @wraps(command)
    def run(**values: Any) -> int:
        made = {
            name: group.make(**{option.name: values.pop(option.name) for option in group.options})
            for name, group in groups.items()
        }
        return command(**values, **made)

    parameters = [each for own in signature(command).parameters.values() for each in declarations(own)]
    run.__dict__["__signature__"] = Signature(parameters)
    return run


def _names(incomplete: str) -> list[str]:
    begun = incomplete.split(",")[:-1]
    return [",".join([*begun, name]) for name in METHODS if name not in begun]


def _whole_number(option: MethodOption, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        remedy = option.instead.get(text, "give a whole number from 1 up")
        raise ConfigError(f"{option.flag} is {quoted(text)}; {remedy}") from None

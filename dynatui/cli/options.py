"""Every option of the command line but those of methods, once: its name, its help and the panel of `--help` it is in.

Only declarations. What the values mean is decided where they are used; an option that was not given is None, so that
defaults live in one place.
"""

from pathlib import Path
from typing import Annotated, get_args

from typer import Argument, Option

from decoder.config import RunConfig
from decoder.errors import ConfigError, quoted
from dynatui.session import Symbols

MODELS = "Models"
PROMPTS = "Prompts"
RUN = "Run"
TREE = "DynaTree's knobs and those of other methods"
OUTPUT = "Without a screen"
SCREEN = "Screen"
DECODING = frozenset({MODELS, PROMPTS, RUN, TREE})
"""Panels whose options settle what is decoded."""
_SLOWEST = 0.001


def _live_speed(text: str) -> float:
    return _speed(text, 1)


def _replay_speed(text: str) -> float:
    return _speed(text, 1000)


def _speed(text: str, fastest: float) -> float:
    """A factor as a number, or as the fraction that the screen writes."""
    above, over, below = str(text).removesuffix("x").partition("/")
    try:
        speed = float(above) / (float(below) if over else 1)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"--speed is {quoted(text)}; give a number, or a fraction such as 1/2") from None
    if not _SLOWEST <= speed <= fastest:
        raise ConfigError(f"--speed is {quoted(text)}; give {_SLOWEST} to {fastest:g}")
    return speed


def _devices() -> list[str]:
    return ["auto", "cpu", "cuda"]


def _dtypes() -> list[str]:
    return ["auto", "float32", "bfloat16", "float16"]


Target = Annotated[
    str | None,
    Option(metavar="ID|DIR", rich_help_panel=MODELS, help="Target model: a Hugging Face id or a folder."),
]
Draft = Annotated[
    str | None,
    Option(metavar="ID|DIR", rich_help_panel=MODELS, help="Draft model with the target's tokenizer."),
]
Device = Annotated[
    str,
    Option(metavar="NAME", rich_help_panel=MODELS, autocompletion=_devices, help="auto, cpu, cuda or cuda:N."),
]
Dtype = Annotated[
    str,
    Option(
        metavar="NAME",
        rich_help_panel=MODELS,
        autocompletion=_dtypes,
        help="auto, float32, bfloat16 or float16. auto: the checkpoint's on CUDA, bfloat16 on a CPU that has it.",
    ),
]
Exact = Annotated[
    bool,
    Option(
        "--exact/--no-exact",
        rich_help_panel=MODELS,
        help="Compute each token bit for bit alike in all methods, in bfloat16 and float16 too. Takes longer. Only hf, "
        "which runs the model by itself, may still differ by a near tie.",
    ),
]
Compiled = Annotated[
    bool,
    Option(
        "--compile/--no-compile",
        rich_help_panel=MODELS,
        help="For CUDA: try torch.compile on the passes of both models and keep what is faster. Delays the start.",
    ),
]

PromptFiles = Annotated[
    list[str] | None,
    Option(
        "--prompt-file",
        metavar="FILE",
        rich_help_panel=PROMPTS,
        help="A text file, a .jsonl file with a prompt a line, or - for standard input. May be repeated.",
    ),
]
PromptTexts = Annotated[
    list[str] | None,
    Option("--prompt", metavar="TEXT", rich_help_panel=PROMPTS, help="The prompt itself. May be repeated."),
]

Chat = Annotated[
    bool | None,
    Option(
        "--chat/--no-chat",
        rich_help_panel=PROMPTS,
        help="Wrap each prompt in the chat template of the target's tokenizer.",
        show_default="no-chat",
    ),
]

MaxNewTokens = Annotated[
    int | None,
    Option(
        metavar="N",
        rich_help_panel=RUN,
        help="Most tokens that follow a prompt.",
        show_default=str(RunConfig().max_new_tokens),
    ),
]
Seed = Annotated[
    int, Option(metavar="S", min=0, max=2**32 - 1, rich_help_panel=RUN, help="Seed of everything that is random.")
]
Record = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        rich_help_panel=RUN,
        help="Write all events to FILE as they happen, after those that are in it already.",
    ),
]
Follow = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        rich_help_panel=RUN,
        help="Watch a recording that another process is writing, instead of decoding.",
    ),
]

Headless = Annotated[
    bool,
    Option(
        "--headless", rich_help_panel=OUTPUT, help="No screen: text on standard output, progress on standard error."
    ),
]
Json = Annotated[
    bool, Option("--json", rich_help_panel=OUTPUT, help="No screen: one JSON object a prompt on standard output.")
]

LiveSpeed = Annotated[
    float | None,
    Option(
        "--speed",
        metavar="X",
        parser=_live_speed,
        rich_help_panel=SCREEN,
        help="1: as fast as the machine; 0.5 or 1/2: half as fast.",
    ),
]
ReplaySpeed = Annotated[
    float | None,
    Option(
        "--speed",
        metavar="X",
        parser=_replay_speed,
        rich_help_panel=SCREEN,
        help="1: as fast as it was recorded; 2: twice, 1/2: half as fast.",
    ),
]
Fps = Annotated[
    int | None, Option(metavar="N", min=1, max=60, rich_help_panel=SCREEN, help="Frames a second. Over SSH 5, else 10.")
]
Theme = Annotated[str | None, Option(metavar="NAME", rich_help_panel=SCREEN, help="A theme of Textual.")]
SymbolSet = Annotated[
    Symbols,
    Option(
        "--symbols",
        metavar="|".join(get_args(Symbols)),
        rich_help_panel=SCREEN,
        help="What curves and lines are drawn with.",
    ),
]
NoColor = Annotated[
    bool, Option("--no-color", rich_help_panel=SCREEN, help="No colours, as with NO_COLOR in the environment.")
]
Mouse = Annotated[
    bool,
    Option(
        "--mouse/--no-mouse",
        rich_help_panel=SCREEN,
        help="Whether clicks and the wheel steer; without, the terminal selects and copies.",
    ),
]
LogFile = Annotated[
    Path | None,
    Option(
        "--log-file",
        metavar="FILE",
        rich_help_panel=SCREEN,
        help="Where messages of libraries and faults go, instead of the user's log folder.",
    ),
]

DoctorJson = Annotated[bool, Option("--json", help="One JSON object instead of lines.")]
ShowPath = Annotated[bool, Option("--path", help="Print only where the file is, or would be.")]
ShowDefault = Annotated[bool, Option("--print-default", help="Print a file to begin with, every line explained.")]

RecordingFile = Annotated[Path, Argument(metavar="FILE", help="A file that --record has written.")]
OtherRecordingFile = Annotated[
    Path | None, Argument(metavar="OTHER", help="Another one, to be shown beside it.", show_default=False)
]

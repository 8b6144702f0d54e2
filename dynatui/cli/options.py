"""Every option of the command line, once: its name, its help and the panel of `--help` it stands in.

Only declarations. What the values mean is decided where they are used, above all in `decoder.config`, whose checks give
the error messages; an option that was not given is None, so that presets and defaults live in one place.
"""

from pathlib import Path
from typing import Annotated, get_args

from typer import Argument, Option

from decoder.config import PRESETS, Auto, RunConfig
from decoder.config import Selection as SelectionName
from decoder.errors import ConfigError, quoted
from decoder.methods import METHODS
from dynatui.session import Symbols

MODELS = "Models"
PROMPTS = "Prompts"
RUN = "Run"
TREE = "DynaTree's knobs and those of other methods"
OUTPUT = "Without a screen"
SCREEN = "Screen"
DECODING = frozenset({MODELS, PROMPTS, RUN, TREE})
"""Panels whose options settle what is decoded."""
AUTO_IS_A_METHOD = "auto is a method: --methods auto"
"""What those are told who ask for an automatic number of nodes, as earlier versions had it."""
_SLOWEST = 0.001
FIRST_PRESET = next(iter(PRESETS))
"""The preset that holds by default."""


def _presets() -> list[str]:
    return list(PRESETS)


def _methods(incomplete: str) -> list[str]:
    begun = incomplete.split(",")[:-1]
    return [",".join([*begun, name]) for name in METHODS if name not in begun]


def _nodes(text: str) -> int:
    """A number of nodes."""
    try:
        return int(text)
    except ValueError:
        remedy = AUTO_IS_A_METHOD if text == "auto" else "give a whole number from 1 up"
        raise ConfigError(f"--n-max is {quoted(text)}; {remedy}") from None


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


def _selections() -> list[str]:
    return list(get_args(SelectionName))


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

Methods = Annotated[
    str | None,
    Option(
        metavar="NAMES",
        rich_help_panel=RUN,
        autocompletion=_methods,
        help=f"The methods that race, of {', '.join(METHODS)}; the first is the one that is watched.",
        show_default=", ".join(RunConfig.methods),
    ),
]
MaxNewTokens = Annotated[
    int | None,
    Option(
        metavar="N",
        rich_help_panel=RUN,
        help="Most tokens that follow a prompt.",
        show_default=str(RunConfig.max_new_tokens),
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

Preset = Annotated[
    str,
    Option(
        metavar="NAME",
        rich_help_panel=TREE,
        autocompletion=_presets,
        help="Values of DynaTree's knobs to begin with. tuned: D0, tau_h and tau_l each act. paper: as published.",
    ),
]
History = Annotated[
    bool | None,
    Option("--history/--no-history", rich_help_panel=TREE, help="Whether past rounds move D0 and tau_h."),
]
TauH = Annotated[
    float | None, Option(metavar="P", rich_help_panel=TREE, help="From this probability on the draft is confident.")
]
TauL = Annotated[
    float | None, Option(metavar="P", rich_help_panel=TREE, help="Under this probability the draft is unsure.")
]
D0 = Annotated[float | None, Option("--d0", metavar="D", rich_help_panel=TREE, help="Base depth of the tree.")]
DMax = Annotated[int | None, Option("--d-max", metavar="D", rich_help_panel=TREE, help="No node is deeper.")]
Branching = Annotated[
    str | None,
    Option(metavar="B,B,B", rich_help_panel=TREE, help="Children where the draft is confident, in between, unsure."),
]
RhoStop = Annotated[
    float | None, Option(metavar="P", rich_help_panel=TREE, help="Less probable paths are not continued.")
]
RhoDeep = Annotated[float | None, Option(metavar="P", rich_help_panel=TREE, help="The same, from the base depth on.")]
Tau = Annotated[
    float | None,
    Option(
        metavar="P",
        rich_help_panel=TREE,
        help="A lower bound on rho_stop.",
    ),
]
NMax = Annotated[
    int | None,
    Option(
        "--n-max",
        metavar="N",
        rich_help_panel=TREE,
        parser=_nodes,
        help="Most drafted nodes of DynaTree's tree. As many as pay: --methods auto.",
    ),
]
Selection = Annotated[
    str | None,
    Option(
        metavar="NAME",
        rich_help_panel=TREE,
        autocompletion=_selections,
        help="Which nodes stay when there are more: bfs or best.",
    ),
]
ChainLength = Annotated[int | None, Option("--k", metavar="K", rich_help_panel=TREE, help="Length of linear's chain.")]
FixedTree = Annotated[
    str | None,
    Option(
        "--fixed",
        metavar="D,B[,P[,N]]",
        rich_help_panel=TREE,
        help="Depth and branching of the fixed tree, the path probability from which nodes grow, and its most nodes.",
    ),
]
AutoBounds = Annotated[
    str | None,
    Option(
        "--auto",
        metavar="KNOB=X,..",
        rich_help_panel=TREE,
        help=f"Bounds within which auto drafts what pays, for example d0=6,b_max=4; of {', '.join(Auto().ends())}.",
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

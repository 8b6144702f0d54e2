"""Options that several commands share. Defaults come from `Models` and `View`; most other options default to None."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from decoder.errors import ConfigError, quoted
from decoder.methods import METHODS, chosen, options_of, racing
from decoder.methods.method import Option as MethodOption
from decoder.prompt import FIELDS
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING
from dynatui.cli.parameters import Option, argument, in_panel, option, switch
from dynatui.session import EMBEDDED_SEED, EMBEDDED_TEMPERATURE, Models, Symbols, View
from dynatui.sources.source import FASTEST, SLOWEST

MODELS = "Models"
PROMPTS = "Prompts"
RUN = "Run"
TREE = "Knobs of DynaTree and of other methods"
OUTPUT = "Without a screen"
SCREEN = "Screen"
MEASUREMENT = "Measurement"
COMPARED = "What is compared"
DECODING = frozenset({MODELS, PROMPTS, RUN, TREE})
"""Panels whose options determine the decoding."""
_DTYPES = ("auto", "float32", "bfloat16", "float16")


def speed(fastest: float, explained: str) -> Option:
    def parse(text: str) -> float:
        above, over, below = str(text).removesuffix("x").partition("/")
        try:
            value = float(above) / (float(below) if over else 1)
        except (ValueError, ZeroDivisionError):
            raise ConfigError(f"--speed is {quoted(text)}; give a number, or a fraction such as 1/2") from None
        if not SLOWEST <= value <= fastest:
            raise ConfigError(f"--speed is {quoted(text)}; give {SLOWEST} to {fastest:g}")
        return value

    return option("--speed X", explained, float, parse=parse, panel=SCREEN)


PROMPT_OPTIONS = in_panel(
    PROMPTS,
    option(
        "--prompt-file FILE",
        "A file of plain text, or of JSON with a prompt in each line or object; - is standard input. May be repeated.",
        list[str],
        name="prompt_files",
    ),
    option(
        "--prompt-field NAME",
        "Field of a prompt file's objects that holds the prompt, or a path such as body.messages. Default: the first "
        f"known field ({', '.join(FIELDS)}).",
        complete=lambda _: FIELDS,
    ),
    option("--prompt TEXT", "The prompt itself. May be repeated.", list[str], name="prompt_texts"),
)
CUT_PROMPT_OPTIONS = (
    *PROMPT_OPTIONS,
    option("--prompt-chars N", "Use only the first N characters of each prompt.", int, least=1, panel=PROMPTS),
)
CHAT = switch(
    "--chat/--no-chat",
    "Wrap each prompt in the chat template of the target's tokenizer. Without either option, only conversations are "
    "wrapped; with --no-chat, the last user's turn of a conversation is plain text.",
    default=None,
    show_default="only conversations",
    panel=PROMPTS,
)
MAX_NEW_TOKENS = option(
    "--max-new-tokens N",
    "Maximum number of tokens to generate for a prompt.",
    int,
    show_default=str(RunConfig().max_new_tokens),
    panel=RUN,
)


def seed(default: int | None = 0, panel: str = RUN, more: str = "") -> Option:
    explained = f"Seed of everything that is random.{more}"
    return option("--seed S", explained, int, default=default, least=0, most=2**32 - 1, panel=panel)


SEED = seed()
LIVE_SEED = seed(None, more=f" Default 0; {EMBEDDED_SEED} for the embedded pair on the screen.")
JSON = switch(
    "--json", "Show no screen, and print one JSON object per prompt on standard output.", name="as_json", panel=OUTPUT
)
HEADLESS = switch(
    "--headless",
    "Show no screen, and print the text on standard output and the progress on standard error.",
    name="no_screen",
    panel=OUTPUT,
)
LOG_FILE = option(
    "--log-file FILE",
    "File for errors and for messages of libraries, instead of the default file in the user's log folder.",
    Path,
    name="log",
    panel=SCREEN,
)
RECORDING = argument("path", "FILE", "A recording, as written by --record.", Path)
MODEL_OPTIONS = in_panel(
    MODELS,
    option("--target ID|DIR", "Target model: a Hugging Face id, which may end in @REVISION, or a folder."),
    option(
        "--draft ID|DIR|lookup|mtp",
        "Draft model, preferably with the target's tokenizer. lookup: no model; drafts are copied from earlier in the "
        "text. mtp: the MTP layer in the target's checkpoint.",
    ),
    option(
        "--inflate SIZE",
        "For the embedded pair: write its texts at the cost of a target with this number of parameters, such as 2.8B "
        "or 500M, and of a usual draft for it, without a download.",
        complete=lambda _: ("160M", "500M", "1.4B", "2.8B", "7B"),
    ),
    option(
        "--device NAME", "auto, cpu, cuda or cuda:N.", default=Models.device, complete=lambda _: ("auto", "cpu", "cuda")
    ),
    option(
        "--dtype NAME",
        "auto, float32, bfloat16 or float16. auto: the checkpoint's dtype on CUDA; on a CPU, float32, or bfloat16 "
        "where torch computes the passes and is faster in it.",
        default=Models.dtype,
        complete=lambda _: _DTYPES,
    ),
    option(
        "--draft-dtype NAME",
        "The draft's dtype; auto: the target's dtype. The draft is faster in half precision, and the target still "
        "decides the text.",
        default=Models.draft_dtype,
        complete=lambda _: _DTYPES,
    ),
    switch(
        "--exact/--no-exact",
        "Use batch-invariant passes, which are slower, but compute each token bit-identically in all methods, also in "
        "bfloat16 and float16. Only the text of hf, which does not use these passes, may still differ at a near tie.",
        default=Models.exact,
    ),
    switch(
        "--compile/--no-compile",
        "For CUDA: try torch.compile on the passes of both models, and use the compiled passes that are faster. This "
        "delays the start.",
        name="compiled",
        default=Models.compiled,
    ),
    switch(
        "--kernels/--no-kernels",
        "For CUDA: try Triton kernels for small parts of rounds, and use those that are faster and give equal results.",
        default=Models.kernels,
    ),
    option(
        "--gpu-layers N",
        "For a --target or --draft that is a GGUF file: number of its layers that llama.cpp keeps on a GPU.",
        int,
        default=Models.gpu_layers,
        least=0,
    ),
)
PAIR_OPTIONS = MODEL_OPTIONS[:6]
"""Model options of commands without options on how passes are computed, such as --exact and --compile."""
VIEW_OPTIONS = (
    *in_panel(
        SCREEN,
        option("--fps N", "Frames per second. Default: 10; over SSH, 5.", int, least=1, most=60),
        option("--theme NAME", "A theme of Textual."),
        option(
            f"--symbols {'|'.join(get_args(Symbols))}",
            "Characters with which curves and lines are drawn.",
            Symbols,
            default=View.symbols,
        ),
        switch("--no-color", "No colours, as with NO_COLOR in the environment."),
        switch(
            "--mouse/--no-mouse",
            "Whether mouse clicks and the wheel control the screen; if not, the terminal can select and copy text.",
            default=View.mouse,
        ),
    ),
    LOG_FILE,
)
LIVE_VIEW = (speed(1, "1: as fast as the machine decodes; 0.5 or 1/2: half as fast."), *VIEW_OPTIONS)
REPLAY_VIEW = (speed(FASTEST, "1: as fast as it was recorded; 2: twice as fast; 1/2: half as fast."), *VIEW_OPTIONS)


def of_methods() -> list[MethodOption]:
    """Options of all methods, in the order of the help text."""
    return sorted((each for method in METHODS.values() for each in method.options), key=lambda each: each.rank)


def rules(own_presets: Callable[[], Sequence[str]]) -> Iterator[Option]:
    """Options of sampling and of all methods; `own_presets` returns names of the user's presets, for completion."""
    for each in options_of(SAMPLING):
        usual = f" Default 0; {EMBEDDED_TEMPERATURE:g} for the embedded pair on the screen."
        yield declared(replace(each, help=each.help + usual * (each.name == "temperature")), RUN)
    for each in of_methods():
        own = " Or a preset of your own, written by dynatui tune." * each.selects_preset
        yield declared(replace(each, help=each.help + own), TREE, own_presets if each.selects_preset else tuple)


def instead(name: str, value: object) -> str | None:
    known = next((each for each in of_methods() if each.name == name), None)
    return known.instead.get(value) if known and isinstance(value, str) else None


def declared(each: MethodOption, panel: str, more: Callable[[], Sequence[str]] = tuple) -> Option:
    return option(
        f"{each.flag}/--no-{each.flag.removeprefix('--')}" if each.kind is bool else f"{each.flag} {each.metavar}",
        each.help,
        each.kind,
        parse=partial(_whole_number, each) if each.instead else None,
        complete=(lambda _: (*each.choices, *more())) if each.choices else None,
        panel=panel,
    )


SAMPLING_OPTIONS = tuple(declared(each, RUN) for each in options_of(SAMPLING))


def methods() -> Option:
    return option(
        "--methods NAMES",
        f"Methods of the race: any of {', '.join(METHODS)}; the screen watches the first method.",
        parse=method_names,
        complete=_names,
        show_default=", ".join(racing()),
        panel=RUN,
    )


def method_names(text: str) -> tuple[str, ...]:
    return tuple(method.name for method in chosen([name.strip() for name in text.split(",")]))


def _names(incomplete: str) -> list[str]:
    begun = incomplete.split(",")[:-1]
    return [",".join([*begun, name]) for name in METHODS if name not in begun]


def _whole_number(each: MethodOption, text: Any) -> int:
    try:
        return int(text)
    except ValueError:
        remedy = each.instead.get(text, "give a whole number from 1 up")
        raise ConfigError(f"{each.flag} is {quoted(text)}; {remedy}") from None

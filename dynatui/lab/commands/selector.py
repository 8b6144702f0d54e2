"""`dynatui selector`: collects labelled roots from prompts, trains a selector on them, and evaluates it. Imports torch
only within a command.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoder.errors import PromptError, require
from dynatui.cli import options, parameters, request
from dynatui.cli.parameters import Declared, Given, Group, Option, OptionGroup, option, switch
from dynatui.lab.bench import Progress
from dynatui.lab.commands.shared import PAIR, names, numbers, shown
from dynatui.lab.tables import Cell, Column, Table, text
from dynatui.session import Models
from dynatui.terminal import streams

if TYPE_CHECKING:
    from decoder.engine import Engine
    from dynatui.lab.selector.train import Prediction, Realised

SELECTOR = "Selector"
LEAST_PROMPTS = 5
"""Minimum number of prompts: of every five prompts, one is used for validation, and one for the evaluation."""
_option, _switch = partial(option, panel=SELECTOR), partial(switch, panel=SELECTOR)


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    return numbers(flag, text, text.split(","), remedy="a number, or several with commas between them")


def _length(default: int) -> Option:
    explained = "Number of tokens to sample after each prompt."
    return _option("--max-new-tokens N", explained, int, name="new_tokens", default=default, least=1)


_DATA = _option("--data DIR", "Folder of labelled roots.", Path, required=True)
_SEED = options.seed(panel=SELECTOR)
_PLAN = (
    _option("--verifiers NAMES", "Verifiers for which roots are labelled.", default="specinfer,traversal", parse=names),
    _option(
        "--temperatures T,T,..",
        "Temperatures at which texts are sampled.",
        default="0.6,1",
        parse=partial(_numbers, "--temperatures"),
    ),
    _option(
        "--top-ps P,P,..",
        "Values of top-p, each combined with every temperature.",
        default="1",
        parse=partial(_numbers, "--top-ps"),
    ),
    _length(96),
    _option("--every N", "Distance in tokens between two labelled roots of a text.", int, default=16, least=1),
    _option(
        "--trees N",
        "Number of independently sampled trees over which a label is averaged.",
        int,
        default=4,
        least=1,
        most=1000,
    ),
    _SEED,
)
COLLECT: Declared = (_DATA, PAIR, request.PROMPTS, OptionGroup("plan", _PLAN))
_RECIPE = (
    _option("--verifier NAME", "The verifier that the selector is trained for.", default="specinfer"),
    _option("--epochs N", "Number of training passes over all roots.", int, default=40, least=1),
    _switch(
        "--hidden/--no-hidden",
        "Whether the selector uses hidden states of the models, if roots contain them.",
        default=True,
    ),
    _SEED,
)
_OUT = _option("--out FILE", "File to which the trained selector is written.", Path, required=True)
TRAIN: Declared = (_DATA, _OUT, OptionGroup("recipe", _RECIPE))
EVALUATE: Declared = (
    _DATA,
    _option("--selector FILE", "File of the selector.", Path, name="selector_file", required=True),
    PAIR,
    request.PROMPTS,
    _switch(
        "--decode/--no-decode",
        "Whether to also decode texts with the selector and with the best fixed shape, to compare their speeds.",
        name="decoding",
        default=True,
    ),
    _length(128),
    _SEED,
)


def command() -> Group:
    commands = [
        parameters.command("collect", collect, COLLECT),
        parameters.command("train", train, TRAIN),
        parameters.command("eval", evaluate, EVALUATE),
    ]
    return parameters.group("selector", selector, (), commands)


def selector() -> None:
    """Train a selector, which chooses the shape of delayed trees, for your models and prompts."""


def collect(*, data: Path, pair: Models, prompts: request.Prompts, plan: Given) -> int:
    """Label roots in sampled texts with the gain of each tree shape; an interrupted collection is resumed."""
    texts = prompts.read()
    if len(texts) < LEAST_PROMPTS:
        raise PromptError(f"{len(texts)} prompts are too few to train and evaluate; give {LEAST_PROMPTS} or more")
    from dynatui.lab.selector import collect as job  # noqa: PLC0415 - imports torch
    from dynatui.lab.selector.collect import CollectionPlan  # noqa: PLC0415

    asked = CollectionPlan(**plan)
    job.require_plan(asked)
    _watched(job.collect(_engine(pair), texts, asked, data))
    streams.say(f"the next step is dynatui selector train --data {data}")
    return 0


def train(*, data: Path, out: Path, recipe: Given) -> int:
    """Train a selector on labelled roots; an interrupted training is resumed."""
    from dynatui.lab.selector import train as job  # noqa: PLC0415
    from dynatui.lab.selector.collect import load, read_manifest  # noqa: PLC0415 - imports torch

    manifest, roots, verifier = read_manifest(data), load(data), recipe["verifier"]
    streams.say(
        f"training a selector for verifier {verifier} on {len(roots)} roots, labelled with target "
        f"{manifest.pair.target} and draft {manifest.pair.draft}"
    )
    _watched(job.train(roots, manifest, job.Recipe(**recipe), out))
    streams.say(f"use the selector with --drafting selector --verifier {verifier} --selector {out}")
    return 0


def evaluate(
    *,
    data: Path,
    selector_file: Path,
    pair: Models,
    prompts: request.Prompts,
    decoding: bool,
    new_tokens: int,
    seed: int,
) -> int:
    """Compare a selector with the best fixed shape for each sampling setting: by labels and by decoding texts."""
    from decoder.selector.policy import fits, read_selector  # noqa: PLC0415 - imports torch
    from dynatui.lab.selector.collect import load, read_manifest  # noqa: PLC0415
    from dynatui.lab.selector.train import predict, realised  # noqa: PLC0415

    policy, trained = read_selector(selector_file)
    manifest = read_manifest(data)
    require(
        fits(trained.pair, manifest.pair),
        f"{data} was collected with {manifest.pair.target} and {manifest.pair.draft}, and {selector_file} was trained "
        f"for {trained.pair.target} with {trained.pair.draft}; give a folder and a selector of the same pair",
    )
    parts = predict(policy, trained.verifier, load(data), manifest)
    out, _ = streams.for_printing()
    streams.show(predictions(trained.verifier, parts), out)
    if not decoding:
        return 0
    from decoder.methods.delayed import Delayed  # noqa: PLC0415

    engine, texts = _engine(pair), prompts.read()
    rules = Delayed(trained.verifier, "selector", 1, selector=str(selector_file))
    total = len(texts) * len(parts)
    found: dict[int, Realised] = {}

    def steps() -> Iterator[Progress]:
        decoded = realised(engine, texts, parts, rules, new_tokens, seed)
        for number, each in enumerate(decoded, 1):
            found[id(each.predicted)] = each
            line = f"{number} of {total} texts decoded, each with the best shape and with the selector"
            yield Progress(line, number / total)

    _watched(steps())
    streams.show(realisations(list(found.values())), out)
    return 0


SETTING = Column("   T", width=4), Column("top-p", width=6)
SPEEDS = (
    Column("best shape", width=12),
    Column("tok/s", "number", 1, 8),
    Column("tok/rnd", "number", 2, 8),
    Column("selector", "number", 1, 10),
    Column("tok/rnd", "number", 2, 8),
    Column("gain", "number", 3, 7),
)


def predictions(verifier: str, parts: Sequence["Prediction"]) -> str:
    rows = []
    for part in parts:
        fixed, selected = ((each.tokens_per_second, each.tokens_per_round) for each in (part.fixed, part.selected))
        chosen = ", ".join(f"{_shape(shape)} {share:.0%}" for shape, share in part.common)
        rows.append((*_setting(part), part.roots, _shape(part.static), *fixed, *selected, part.gain, f"  {chosen}"))
    columns = (*SETTING, Column("roots", "number", 0, 6), *SPEEDS, Column("  chosen most"))
    return text(Table(title=f"predicted, verifier {verifier}", columns=columns, rows=tuple(rows))) + "\n"


def realisations(realised: Sequence["Realised"]) -> str:
    from decoder.analysis.metrics import total  # noqa: PLC0415 - imports numpy

    rows = []
    for each in realised:
        fixed, selected = total(each.static), total(each.selected)
        rates = fixed.tokens_per_second, selected.tokens_per_second
        cells = (rates[0], fixed.tokens_per_round, rates[1], selected.tokens_per_round)
        gain = rates[1] / rates[0] if rates[0] and rates[1] else None
        rows.append((*_setting(each.predicted), _shape(each.predicted.static), *cells, gain))
    return text(Table(title="decoded", columns=(*SETTING, *SPEEDS), rows=tuple(rows))) + "\n"


def _watched(steps: Iterator[Progress]) -> None:
    for _ in shown(steps):
        pass


def _engine(pair: Models) -> "Engine":
    from decoder import load_pair  # noqa: PLC0415 - imports torch
    from decoder.models.heads import require_whole_draft  # noqa: PLC0415 - imports torch

    load: Callable[..., Engine] = load_pair
    require_whole_draft("dynatui selector", pair.target, pair.draft)
    return load(**vars(pair), report=streams.say)


def _setting(part: "Prediction") -> tuple[Cell, ...]:
    return f"{part.sampling.temperature:4g}", f"{part.sampling.top_p:g}"


def _shape(shape: Any) -> str:
    return f"{shape.k},{shape.l1},{shape.l2}"

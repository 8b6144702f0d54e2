"""`dynatui selector`: collects labelled roots from prompts, trains a selector on them, and evaluates it.

A selector chooses the shape of delayed trees. The meaning of the options is decided in `decoder.selector`. Imports
torch only within a command.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup, TyperOption

from decoder.errors import PromptError, require
from decoder.prompts.prompt import AnyPrompt
from dynatui.cli import options, parameters, request
from dynatui.cli.parameters import Declared, option, switch
from dynatui.lab.bench.on_pair import OnPair
from dynatui.lab.commands.bench_result import shown
from dynatui.lab.commands.number_lists import PAIR, numbers
from dynatui.terminal import streams

if TYPE_CHECKING:
    from decoder.engine import Engine
    from dynatui.lab.bench.selector_rounds import Realised
    from dynatui.lab.selector.train import Prediction

SELECTOR = "Selector"
LEAST_PROMPTS = 5
"""Minimum number of prompts: one prompt is kept for validation, and one prompt for the evaluation."""
_option, _switch = partial(option, panel=SELECTOR), partial(switch, panel=SELECTOR)


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    return numbers(flag, text, text.split(","), remedy="a number, or several with commas between them")


def _verifiers(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",")))


def _length(default: int) -> TyperOption:
    return _option("--max-new-tokens N", "Number of tokens to sample after each prompt.", int, default=default, least=1)


_DATA = _option("--data DIR", "Folder of labelled roots.", Path, required=True)
_SEED = options.seed(panel=SELECTOR)
COLLECT: Declared = (
    _DATA,
    PAIR,
    request.PROMPTS,
    _option(
        "--verifiers NAMES", "Verifiers for which roots are labelled.", default="specinfer,traversal", parse=_verifiers
    ),
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
TRAIN: Declared = (
    _DATA,
    _option("--out FILE", "File to which the trained selector is written.", Path, required=True),
    _option("--verifier NAME", "The verifier that the selector is trained for.", default="specinfer"),
    _option("--epochs N", "Number of training passes over all roots.", int, default=40, least=1),
    _switch(
        "--hidden/--no-hidden",
        "Whether the selector uses hidden states of the models, if roots contain them.",
        default=True,
    ),
    _SEED,
)
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


@dataclass(frozen=True)
class Step:
    """The state of a long task: a line of text and the completed share."""

    line: str
    share: float
    of: Any = None


def command() -> TyperGroup:
    """The command group `dynatui selector`."""
    commands = [
        parameters.command("collect", collect, COLLECT),
        parameters.command("train", train, TRAIN),
        parameters.command("eval", evaluate, EVALUATE),
    ]
    return parameters.group("selector", selector, (), commands)


def selector() -> None:
    """Train a selector, which chooses the shape of delayed trees, for your models and prompts."""


def collect(
    *,
    data: Path,
    pair: OnPair,
    prompts: request.Prompts,
    verifiers: tuple[str, ...],
    temperatures: tuple[float, ...],
    top_ps: tuple[float, ...],
    max_new_tokens: int,
    every: int,
    trees: int,
    seed: int,
) -> int:
    """Label roots in sampled texts with the gain of each tree shape; an interrupted collection is resumed."""
    texts = prompts.read()
    if len(texts) < LEAST_PROMPTS:
        raise PromptError(f"{len(texts)} prompts are too few to train and evaluate; give {LEAST_PROMPTS} or more")
    from dynatui.lab.selector import collect as job  # noqa: PLC0415 - imports torch
    from dynatui.lab.selector.dataset import CollectionPlan  # noqa: PLC0415

    plan = CollectionPlan(
        verifiers,
        temperatures=temperatures,
        top_ps=top_ps,
        new_tokens=max_new_tokens,
        every=every,
        trees=trees,
        seed=seed,
    )
    job.require_plan(plan)
    steps = (
        Step(f"{step.done} of {step.total} texts done, {step.roots} roots labelled in this run", step.done / step.total)
        for step in job.collect(_engine(pair), texts, plan, data)
    )
    for _ in shown(steps):
        pass
    streams.say(f"the next step is dynatui selector train --data {data}")
    return 0


def train(*, data: Path, out: Path, verifier: str, epochs: int, hidden: bool, seed: int) -> int:
    """Train a selector on labelled roots; an interrupted training is resumed."""
    from dynatui.lab.selector import dataset  # noqa: PLC0415 - imports torch
    from dynatui.lab.selector import train as job  # noqa: PLC0415

    manifest, roots = dataset.read_manifest(data), dataset.load(data)
    recipe = job.Recipe(verifier, epochs=epochs, hidden=hidden, seed=seed)
    streams.say(
        f"training a selector for verifier {verifier} on {len(roots)} roots, labelled with target "
        f"{manifest.pair.target} and draft {manifest.pair.draft}"
    )
    steps = (
        Step(f"epoch {step.number} of {step.total}, loss {step.loss:.3f}, best gain {step.best:.3f}", _share(step))
        for step in job.train(roots, manifest, recipe, out)
    )
    for _ in shown(steps):
        pass
    streams.say(f"use the selector with --drafting selector --verifier {verifier} --selector {out}")
    return 0


def evaluate(
    *,
    data: Path,
    selector_file: Path,
    pair: OnPair,
    prompts: request.Prompts,
    decoding: bool,
    max_new_tokens: int,
    seed: int,
) -> int:
    """Compare a selector with the best fixed shape for each sampling setting: by labels and by decoding texts."""
    from decoder.selector import stored  # noqa: PLC0415 - imports torch
    from dynatui.lab.selector import dataset  # noqa: PLC0415
    from dynatui.lab.selector.train import predict  # noqa: PLC0415

    policy, trained = stored.read(selector_file)
    manifest = dataset.read_manifest(data)
    require(
        stored.fits(trained.pair, manifest.pair),
        f"{data} was collected with {manifest.pair.target} and {manifest.pair.draft}, and {selector_file} was trained "
        f"for {trained.pair.target} with {trained.pair.draft}; give a folder and a selector of the same pair",
    )
    parts = predict(policy, trained.verifier, dataset.load(data), manifest)
    out, _ = streams.for_printing()
    streams.show(predictions(trained.verifier, parts), out)
    if decoding:
        realised = _decoded(_engine(pair), prompts.read(), parts, trained.verifier, selector_file, max_new_tokens, seed)
        streams.show(realisations(realised), out)
    return 0


def predictions(verifier: str, parts: Sequence["Prediction"]) -> str:
    """Table of the rates predicted from labels, for the best fixed shape and for the selector."""
    head = f"{'T':>4} {'top-p':>5} {'roots':>5}  {'best shape':>10} {'tok/s':>7} {'tok/rnd':>7}  "
    lines = [f"predicted, verifier {verifier}", head + f"{'selector':>8} {'tok/rnd':>7} {'gain':>6}  chosen most"]
    for part in parts:
        chosen = ", ".join(f"{_shape(shape)} {share:.0%}" for shape, share in part.common)
        lines.append(
            f"{_setting(part)} {part.roots:5}  {_shape(part.static):>10} {part.static_rate:7.1f} "
            f"{part.static_tokens:7.2f}  {part.selected_rate:8.1f} {part.selected_tokens:7.2f} {part.gain:6.3f}  "
            f"{chosen}"
        )
    return "\n".join(lines) + "\n"


def realisations(realised: Sequence["Realised"]) -> str:
    """Table of the rates measured in decoded texts, for the best fixed shape and for the selector."""
    head = f"{'T':>4} {'top-p':>5}  {'best shape':>10} {'tok/s':>7} {'tok/rnd':>7}  "
    lines = ["decoded", head + f"{'selector':>8} {'tok/rnd':>7} {'gain':>6}"]
    lines += [
        f"{_setting(each.predicted)}  {_shape(each.predicted.static):>10} {each.static.rate:7.1f} "
        f"{each.static.tokens_per_round:7.2f}  {each.selected.rate:8.1f} {each.selected.tokens_per_round:7.2f} "
        f"{each.gain:6.3f}"
        for each in realised
    ]
    return "\n".join(lines) + "\n"


def _decoded(
    engine: "Engine",
    texts: Sequence[AnyPrompt],
    parts: Sequence["Prediction"],
    verifier: str,
    file: Path,
    max_new_tokens: int,
    seed: int,
) -> list["Realised"]:
    from decoder.methods.delayed import Delayed  # noqa: PLC0415
    from dynatui.lab.bench import selector_rounds  # noqa: PLC0415 - imports torch

    rules = Delayed(verifier, "selector", 1, selector=str(file))
    total = len(texts) * len(parts)
    steps = (
        Step(f"{number} of {total} texts decoded, each with the best shape and with the selector", number / total, each)
        for number, each in enumerate(selector_rounds.realised(engine, texts, parts, rules, max_new_tokens, seed), 1)
    )
    return list({id(step.of.predicted): step.of for step in shown(steps)}.values())


def _engine(pair: OnPair) -> "Engine":
    from decoder import load_pair  # noqa: PLC0415 - imports torch
    from decoder.models.heads import require_whole_draft  # noqa: PLC0415 - imports torch

    load: Callable[..., Engine] = load_pair
    require_whole_draft("dynatui selector", pair.target, pair.draft)
    return load(**pair.pair_options, report=streams.say)


def _share(step: Any) -> float:
    return float(step.number / step.total)


def _setting(part: "Prediction") -> str:
    return f"{part.sampling.temperature:4g} {part.sampling.top_p:5g}"


def _shape(shape: Any) -> str:
    return f"{shape.k},{shape.l1},{shape.l2}"

"""Measured gain in speed from a selector of tree shapes.

For each sampling setting, each prompt is decoded with the best static shape and with the selector.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from decoder.engine import Engine
from decoder.events import Figures, Summary
from decoder.methods.delayed import Delayed
from decoder.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.run.race import decode
from decoder.sampling.settings import SAMPLING
from decoder.verify.names import Drafting
from dynatui.lab.selector.train import Prediction

METHOD = "delayed"


@dataclass(frozen=True)
class Realised:
    """Figures of the texts decoded so far at one sampling setting, with the best static shape and with the selector."""

    predicted: Prediction
    static: list[Figures] = field(default_factory=list)
    selected: list[Figures] = field(default_factory=list)


def realised(
    engine: Engine,
    prompts: Sequence[AnyPrompt],
    parts: Sequence[Prediction],
    rules: Delayed,
    max_new_tokens: int,
    seed: int,
) -> Iterator[Realised]:
    """Decodes each prompt with the static shape and with the selector; after each prompt, yields the figures so far.

    The first prompt has the seed `seed`, the second `seed` + 1, and so on.
    """
    for part in parts:
        shape, sampling, found = part.static, part.sampling, Realised(part)
        static = replace(rules, drafting=Drafting.DELAYED, k=shape.k, l1=shape.l1, l2=shape.l2)
        plain = RunConfig((METHOD,), max_new_tokens).with_rules(SAMPLING, sampling)
        runs = [plain.with_rules(METHOD, each) for each in (static, replace(static, drafting=Drafting.SELECTOR))]
        for run in runs:
            _figures(engine, prompts[0], run, seed)  # warm-up
        for number, prompt in enumerate(prompts, seed):
            for run, texts in zip(runs, (found.static, found.selected), strict=True):
                texts.append(_figures(engine, prompt, run, number))
            yield found


def _figures(engine: Engine, prompt: AnyPrompt, run: RunConfig, seed: int) -> Figures:
    config = RunConfig(run.methods, run.max_new_tokens, seed, parameters=run.parameters)
    return next(event.methods[METHOD] for event in decode(engine, prompt, config) if isinstance(event, Summary))

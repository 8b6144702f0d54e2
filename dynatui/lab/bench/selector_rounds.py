"""Measured gain in speed from a selector of tree shapes.

For each sampling setting, each prompt is decoded with the best static shape and with the selector.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from decoder.engine import Engine
from decoder.errors import ModelError
from decoder.events import Figures, Summary
from decoder.methods.delayed import Delayed
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.run.race import decode
from decoder.verify.names import Drafting
from dynatui.lab.selector.train import Prediction

METHOD = "delayed"


@dataclass(frozen=True)
class Realised:
    """Figures of the texts decoded so far at one sampling setting, with the best static shape and with the selector."""

    predicted: Prediction
    static: list[Figures] = field(default_factory=list)
    selected: list[Figures] = field(default_factory=list)

    @property
    def gain(self) -> float:
        return rate(self.selected) / rate(self.static) if rate(self.static) else 0.0


def rate(texts: Sequence[Figures]) -> float:
    """Tokens per second over all texts together."""
    seconds = sum(text.decode_s for text in texts)
    return sum(text.committed for text in texts) / seconds if seconds else 0.0


def tokens_per_round(texts: Sequence[Figures]) -> float:
    rounds = sum(text.rounds for text in texts)
    return sum(text.committed for text in texts) / rounds if rounds else 0.0


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
        shape = part.static
        static = replace(rules, drafting=Drafting.DELAYED, k=shape.k, l1=shape.l1, l2=shape.l2)
        selecting, found = replace(static, drafting=Drafting.SELECTOR), Realised(part)
        for each in (static, selecting):
            _figures(engine, prompts[0], part, each, max_new_tokens, seed)  # warm-up
        for number, prompt in enumerate(prompts, seed):
            found.static.append(_figures(engine, prompt, part, static, max_new_tokens, number))
            found.selected.append(_figures(engine, prompt, part, selecting, max_new_tokens, number))
            yield found


def _figures(
    engine: Engine, prompt: AnyPrompt, part: Prediction, rules: Delayed, max_new_tokens: int, seed: int
) -> Figures:
    sampling = part.sampling
    config = RunConfig(
        (METHOD,), max_new_tokens, seed, temperature=sampling.temperature, top_p=sampling.top_p, delayed=rules
    )
    for event in decode(engine, prompt, config):
        if isinstance(event, Summary):
            return event.methods[METHOD]
    raise ModelError("a run ended without a summary; run dynatui doctor")

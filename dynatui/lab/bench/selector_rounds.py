"""Measured gain of a selector of tree shapes.

For each sampling setting, the selector and the best static shape decode the same texts in turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
class Sums:
    """Totals over the texts that were decoded with one way of choosing shapes."""

    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0

    def plus(self, figures: Figures) -> "Sums":
        tokens, rounds = self.tokens + figures.committed, self.rounds + figures.rounds
        return Sums(tokens, rounds, self.seconds + figures.decode_s)

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_round(self) -> float:
        return self.tokens / self.rounds if self.rounds else 0.0


@dataclass(frozen=True)
class Realised:
    """Totals with the best static shape and with the selector, at one sampling setting."""

    predicted: Prediction
    static: Sums
    selected: Sums

    @property
    def gain(self) -> float:
        """Of tokens/s."""
        return self.selected.rate / self.static.rate if self.static.rate else 0.0


def realised(
    engine: Engine,
    prompts: Sequence[AnyPrompt],
    parts: Sequence[Prediction],
    rules: Delayed,
    max_new_tokens: int,
    seed: int,
) -> Iterator[Realised]:
    """Decodes each prompt with the static shape and with the selector; yields the totals so far after each prompt.

    The seed of each prompt is 1 higher than that of the prompt before.
    """
    for part in parts:
        static = replace(rules, drafting=Drafting.DELAYED, k=part.static.k, l1=part.static.l1, l2=part.static.l2)
        totals = Realised(part, Sums(), Sums())
        selecting = replace(static, drafting=Drafting.SELECTOR)
        for each in (static, selecting):
            # warm-up
            _figures(engine, prompts[0], part, each, max_new_tokens, seed)
        for number, prompt in enumerate(prompts, seed):
            by_static = _figures(engine, prompt, part, static, max_new_tokens, number)
            by_selector = _figures(engine, prompt, part, selecting, max_new_tokens, number)
            totals = Realised(part, totals.static.plus(by_static), totals.selected.plus(by_selector))
            yield totals


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

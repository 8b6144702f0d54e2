"""What a selector really brings: texts decoded with it and with the best shape for their setting, turn by turn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from decoder.config import RunConfig
from decoder.engine import Engine
from decoder.errors import ModelError
from decoder.events import Figures, Summary
from decoder.methods.delayed import Delayed
from decoder.race import decode
from decoder.selector.evaluate import Prediction
from decoder.verify.names import Drafting

METHOD = "delayed"


@dataclass(frozen=True)
class Sums:
    """Of the texts that one way to choose shapes has decoded."""

    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0

    def plus(self, figures: Figures) -> "Sums":
        """With one more text."""
        tokens, rounds = self.tokens + figures.committed, self.rounds + figures.rounds
        return Sums(tokens, rounds, self.seconds + figures.decode_s)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Mean over rounds."""
        return self.tokens / self.rounds if self.rounds else 0.0


@dataclass(frozen=True)
class Realised:
    """At one sampling setting."""

    predicted: Prediction
    static: Sums
    selected: Sums

    @property
    def gain(self) -> float:
        """Tokens a second of the selector over those of the best shape."""
        return self.selected.rate / self.static.rate if self.static.rate else 0.0


def realised(
    engine: Engine, prompts: Sequence[str], parts: Sequence[Prediction], rules: Delayed, max_new_tokens: int, seed: int
) -> Iterator[Realised]:
    """Decodes each prompt both ways at each setting; yields what is known of the setting after each prompt.

    Args:
        engine: A pair from `load_pair`.
        prompts: Decoded one after the other.
        parts: The settings, with the best shape of each.
        rules: With the verifier and the selector.
        max_new_tokens: Of each text.
        seed: Of the first prompt; each further one has the next.
    """
    for part in parts:
        static = replace(rules, drafting=Drafting.DELAYED, k=part.static.k, l1=part.static.l1, l2=part.static.l2)
        found = Realised(part, Sums(), Sums())
        selecting = replace(static, drafting=Drafting.SELECTOR)
        for each in (static, selecting):
            # What the first text of a way costs besides is told to nobody.
            _figures(engine, prompts[0], part, each, max_new_tokens, seed)
        for number, prompt in enumerate(prompts, seed):
            by_static = _figures(engine, prompt, part, static, max_new_tokens, number)
            by_selector = _figures(engine, prompt, part, selecting, max_new_tokens, number)
            found = Realised(part, found.static.plus(by_static), found.selected.plus(by_selector))
            yield found


def _figures(engine: Engine, prompt: str, part: Prediction, rules: Delayed, max_new_tokens: int, seed: int) -> Figures:
    sampling = part.sampling
    config = RunConfig(
        (METHOD,), max_new_tokens, seed, temperature=sampling.temperature, top_p=sampling.top_p, delayed=rules
    )
    for event in decode(engine, prompt, config):
        if isinstance(event, Summary):
            return event.methods[METHOD]
    raise ModelError("a run ended without a summary; run dynatui doctor")

"""A pair with eight tokens, the exact law of its texts of three tokens, and texts of the engine.

The law is computed by 1 + 8 + 64 plain forward passes of the target's module, and truncated as in transformers. A text
is a string of digits, one per token. Each text has its own seed and newly sampled trees.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import torch

from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.methods import METHODS
from decoder.methods.delayed import Delayed
from decoder.models.pair import Pair
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling, Schedule
from tests import tiny
from tests.decoder.laws.joint_law import Law
from tests.sampled_reference import kept

VOCABULARY, TOKENS = 8, 3
PROMPT = (5,)


@dataclass(frozen=True)
class Likeness:
    """Seed of a random target, and the draft's distance from it."""

    seed: int
    heat: float
    noise: float


PAIRS = {"neox": Likeness(3, 0.4, 0.25), "llama": Likeness(5, 0.3, 0.15)}
"""Chosen so that every mistake of `mistakes` is visible: no token is too improbable, and drafts are often wrong."""


@dataclass(frozen=True)
class Setting:
    """Settings of a decoding: models, method and sampling."""

    family: str
    config: RunConfig

    def __str__(self) -> str:
        return f"{self.family}, {PAIRS[self.family]}, prompt {PROMPT}, {self.config}"

    @property
    def law(self) -> Law:
        """Probability of every text."""
        return law(self.family, self.config.sampling)


def drawn(
    verifier: str, drafting: str, shape: tuple[int, int, int], sampling: Sampling, family: str = "neox"
) -> Setting:
    """Setting with sampled trees of a shape (K, L1, L2)."""
    return Setting(family, sampled("delayed", sampling, delayed=Delayed(verifier, drafting, *shape)))


def sampled(method: str, sampling: Sampling, **given: Any) -> RunConfig:
    """A run of one method."""
    return RunConfig((method,), TOKENS, temperature=sampling.temperature, top_p=sampling.top_p, **given)


@cache
def engine(family: str) -> Engine:
    """The pair of a family, in float32."""
    likeness = PAIRS[family]
    shape = tiny.FAMILIES[family](vocab_size=VOCABULARY)
    target = tiny.build(shape, likeness.seed, spread=0.5, heat=likeness.heat)
    draft = tiny.kin(target, likeness.seed + 1, noise=likeness.noise)
    models = (LanguageModel.of_module(target, "target"), LanguageModel.of_module(draft, "draft"))
    no_text_is_read: Any = None
    return Engine(Pair(*models, no_text_is_read, eos=frozenset(), context=tiny.CONTEXT))


@cache
def law(family: str, sampling: Sampling) -> Law:
    """Probability of every text of three tokens."""
    module = engine(family).pair.target.hf.module
    found = {"": 1.0}
    for _ in range(TOKENS):
        after = {text: _chances(module, text, sampling) for text in found}
        found = {
            text + str(token): found[text] * after[text][token] for text, token in product(found, range(VOCABULARY))
        }
    return found


def _chances(module: Any, text: str, sampling: Sampling) -> list[float]:
    with torch.inference_mode():
        logits = module(torch.tensor([[*PROMPT, *map(int, text)]]), use_cache=False).logits[0, -1].double()
    weights = (logits / sampling.temperature).softmax(-1) * kept(logits.float(), sampling)
    chances: list[float] = (weights / weights.sum()).tolist()
    return chances


def texts(setting: Setting, seeds: Iterable[int]) -> Counter[str]:
    """Counts of texts, one text per seed."""
    config = setting.config
    method = METHODS[config.methods[0]]
    found: Counter[str] = Counter()
    for seed in seeds:
        noise = Schedule(config.sampling)
        own = engine(setting.family).sampled(seed, noise, draft_knows_noise=config.draft_knows_noise)
        session = method.open(own, PROMPT, config)
        session.prefill()
        text = ""
        while len(text) < TOKENS:
            text += "".join(map(str, session.step(()).committed))
        found[text] += 1
    return found

"""Over seeds, the first three tokens are distributed as the target's, to all that can be told from so many texts.

The law is enumerated: 1 + 8 + 64 plain forward passes of the target's module. Noise that repeats, over positions or
over seeds, is told from right noise by the same test.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from decoder import DynaTree, Linear
from decoder.config import Sampling
from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.models.pair import Pair
from decoder.sampling import noise, perturbation
from decoder.sampling.settings import Schedule
from tests import tiny
from tests.decoder.makers import host_session
from tests.reference import Path
from tests.sampled_reference import kept

pytestmark = pytest.mark.slow

VOCABULARY, TOKENS, TEXTS = 8, 3, 1500
PROMPT = (1, 5, 2)
ALPHA = 1e-4
"""Chance of a false alarm in one test."""
SETTINGS = {"T .7": Sampling(0.7), "T 1, top-p .9": Sampling(1.0, 0, 0.9), "T 2": Sampling(2.0)}
RULES = {"a chain": Linear(2), "a tree": DynaTree(branching=(2, 2, 3), rho_stop=0.01, rho_deep=0.05, d0=2, d_max=3)}
Law = Mapping[Path, float]


@cache
def engine(family: str) -> Engine:
    shape = {"vocab_size": VOCABULARY}
    target = tiny.build(tiny.FAMILIES[family](**shape), seed=3, spread=0.5, heat=0.9)
    draft = tiny.kin(target, seed=4, noise=0.5)
    models = (LanguageModel(target, "target"), LanguageModel(draft, "draft"))
    no_text_is_read: Any = None
    return Engine(Pair(*models, no_text_is_read, VOCABULARY, eos=frozenset(), context=tiny.CONTEXT))


@cache
def law(family: str, sampling: Sampling) -> Law:
    """The chance of every text of three tokens."""
    module = engine(family).pair.target.module

    @cache
    def after(text: Path) -> list[float]:
        with torch.inference_mode():
            logits = module(torch.tensor([text]), use_cache=False).logits[0, -1].double()
        weights = (logits / sampling.temperature).softmax(-1) * kept(logits.float(), sampling)
        chances: list[float] = (weights / weights.sum()).tolist()
        return chances

    return {
        text: float(np.prod([after(PROMPT + text[:place])[token] for place, token in enumerate(text)]))
        for text in product(range(VOCABULARY), repeat=TOKENS)
    }


def texts(family: str, sampling: Sampling, rules: Any, seeds: range) -> Counter[Path]:
    found: Counter[Path] = Counter()
    for seed in seeds:
        session = host_session(engine(family).sampled(seed, Schedule(sampling)), PROMPT, TOKENS, rules)
        session.prefill()
        while not session.step(()).finished:
            pass
        found[tuple(session.text[len(PROMPT) :])] += 1
    return found


def false_alarm(counts: Counter[Path], expected: Law) -> float:
    """The chance that a right sampler looks no more likely than this (Pearson); 0 where the impossible was seen.

    Cells of which fewer than 5 are expected are taken together.
    """
    whole = counts.total()
    if any(expected[text] == 0 for text in counts):
        return 0.0
    large = [text for text, chance in expected.items() if whole * chance >= 5]
    cells = [(counts[text], whole * expected[text]) for text in large]
    rest = whole - sum(count for count, _ in cells), whole - sum(mean for _, mean in cells)
    cells += [rest] if rest[1] >= 5 else []
    distance = sum((count - mean) ** 2 / mean for count, mean in cells)
    return float(chi2.sf(distance, len(cells) - 1))


@pytest.mark.parametrize(
    ("family", "sampling", "rules"),
    [("neox", "T .7", "a tree"), ("llama", "T 1, top-p .9", "a chain"), ("neox", "T 2", "a chain")],
)
def test_texts_are_distributed_as_the_target_s(family: str, sampling: str, rules: str) -> None:
    counts = texts(family, SETTINGS[sampling], RULES[rules], range(TEXTS))
    assert false_alarm(counts, law(family, SETTINGS[sampling])) > ALPHA


def test_what_is_drafted_makes_no_difference_to_any_text() -> None:
    found = [texts("neox", SETTINGS["T .7"], rules, range(100)) for rules in (None, *RULES.values())]
    assert found[0] == found[1] == found[2]


def everywhere_alike(gumbel: Callable[..., Any], seed: int, positions: Any, vocabulary: int) -> Any:
    return gumbel(seed, [0] * len(positions), vocabulary)


def few_seeds(gumbel: Callable[..., Any], seed: int, positions: Any, vocabulary: int) -> Any:
    return gumbel(seed % 200, positions, vocabulary)


def every_other_position_alike(gumbel: Callable[..., Any], seed: int, positions: Any, vocabulary: int) -> Any:
    return gumbel(seed, [position // 2 for position in positions], vocabulary)


@pytest.mark.parametrize("wrong", [everywhere_alike, few_seeds, every_other_position_alike])
def test_noise_that_repeats_is_found(wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "gumbel", partial(wrong, noise.gumbel))
    counts = texts("neox", SETTINGS["T 2"], RULES["a chain"], range(TEXTS))
    assert false_alarm(counts, law("neox", SETTINGS["T 2"])) < ALPHA

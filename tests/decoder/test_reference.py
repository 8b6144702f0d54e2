"""The reference is compared with transformers, since the engine could share an error with the reference."""

from typing import Any

import pytest

from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from tests.decoder.makers import TinyModels
from tests.reference import Step, greedy, simulate
from tests.tiny import FAMILIES, VOCABULARY

PROMPT = "The tree grows"
CONFIGS = {
    "ar": None,
    "linear": Linear(),
    "fixed": Fixed(),
    "dynatree": DynaTree(rho_stop=0.02, tau=0.01),
    "alg1": DynaTree(),
}


def rounds(models: TinyModels, pair: str, method: str, config: Any, *eos: int) -> list[Step]:
    oracle = models.oracle(pair, "float64", frozenset(eos))
    return simulate(oracle, models.prompt_tokens(pair, PROMPT), method, config, 40)


def text_of(steps: list[Step]) -> list[int]:
    return [token for step in steps for token in step.committed]


@pytest.mark.parametrize(("pair", "count"), [*((family, 32) for family in FAMILIES), ("wide-target", 16)])
def test_fresh_forwards_continue_a_prompt_as_generate_does(tiny_models: TinyModels, pair: str, count: int) -> None:
    """Also with ids that only the target has."""
    text = greedy(tiny_models.oracle(pair, "float64"), tiny_models.prompt_tokens(pair, PROMPT), count)
    assert text == tiny_models.generate(pair, "float64", PROMPT, count)
    assert (max(text) >= VOCABULARY) == (pair == "wide-target")


@pytest.mark.parametrize("method", CONFIGS)
def test_the_rounds_of_the_reference_spell_the_greedy_text(tiny_models: TinyModels, method: str) -> None:
    steps = rounds(tiny_models, "neox", method, CONFIGS[method])
    assert text_of(steps) == tiny_models.generate("neox", "float64", PROMPT, 40)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_kindred_draft_is_accepted_deeply(tiny_models: TinyModels, family: str) -> None:
    assert max(len(step.accepted) for step in rounds(tiny_models, family, "fixed", Fixed(tau=0.02))) >= 3


def test_rounds_stop_at_the_end_of_text(tiny_models: TinyModels) -> None:
    text = tiny_models.generate("neox", "float64", PROMPT, 40)
    steps = rounds(tiny_models, "neox", "fixed", Fixed(), text[9])
    assert text_of(steps) == text[: text.index(text[9]) + 1]

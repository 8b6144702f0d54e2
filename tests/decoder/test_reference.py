"""The reference is compared with transformers, since the engine could share an error with the reference."""

import pytest

from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from tests.decoder.makers import TinyModels
from tests.reference import greedy, simulate
from tests.tiny import FAMILIES, VOCABULARY

PROMPT = "The tree grows"
CONFIGS = {
    "ar": None,
    "linear": Linear(),
    "fixed": Fixed(),
    "dynatree": DynaTree(rho_stop=0.02, tau=0.01),
    "alg1": DynaTree(),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_forwards_continue_a_prompt_as_generate_does(tiny_models: TinyModels, family: str) -> None:
    pair = tiny_models.pair(family)
    mine = greedy(tiny_models.oracle(pair, "float64"), tiny_models.prompt_tokens(pair, PROMPT), 32)
    assert mine == tiny_models.generate(pair, "float64", PROMPT, 32)


def test_the_reference_chooses_ids_that_only_the_target_has(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("wide-target")
    text = greedy(tiny_models.oracle(pair, "float64"), tiny_models.prompt_tokens(pair, PROMPT), 16)
    assert max(text) >= VOCABULARY
    assert text == tiny_models.generate(pair, "float64", PROMPT, 16)


@pytest.mark.parametrize("method", CONFIGS)
def test_the_rounds_of_the_reference_spell_the_greedy_text(tiny_models: TinyModels, method: str) -> None:
    pair = tiny_models.pair("neox")
    steps = simulate(
        tiny_models.oracle(pair, "float64"), tiny_models.prompt_tokens(pair, PROMPT), method, CONFIGS[method], 40
    )
    assert [token for step in steps for token in step.committed] == tiny_models.generate(pair, "float64", PROMPT, 40)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_kindred_draft_is_accepted_deeply(tiny_models: TinyModels, family: str) -> None:
    pair = tiny_models.pair(family)
    steps = simulate(
        tiny_models.oracle(pair, "float64"), tiny_models.prompt_tokens(pair, PROMPT), "fixed", Fixed(tau=0.02), 40
    )
    assert max(len(step.accepted) for step in steps) >= 3


def test_rounds_stop_at_the_end_of_text(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    text = tiny_models.generate(pair, "float64", PROMPT, 40)
    eos = frozenset({text[9]})
    steps = simulate(
        tiny_models.oracle(pair, "float64", eos), tiny_models.prompt_tokens(pair, PROMPT), "fixed", Fixed(), 40
    )
    assert [token for step in steps for token in step.committed] == text[: text.index(text[9]) + 1]

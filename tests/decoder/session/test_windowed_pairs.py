"""On texts longer than the attention window, every method writes the text of `generate`, greedy and sampled."""

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from decoder import RunConfig, decode
from decoder.events import Round
from tests import tiny
from tests.decoder.makers import TinyModels, methods_of
from tests.decoder.survey.trial import SEED, CoupledNoise

PROMPT, COUNT, TEMPERATURE = tiny.SENTENCES[0], 24, 0.7
"""The prompt is longer than the window."""
SAMPLING = ("ar", "linear", "fixed", "dynatree", "auto", "bestfirst", "alg1")


def texts(tiny_models: TinyModels, name: str, config: RunConfig) -> dict[str, list[int]]:
    """Generated tokens by method."""
    found: dict[str, list[int]] = {method: [] for method in config.methods}
    for event in decode(tiny_models.engine(name, "float64"), PROMPT, config):
        if isinstance(event, Round):
            found[event.method] += event.committed
    return found


@pytest.mark.parametrize("name", tiny.WINDOWED)
def test_greedy_texts_are_those_of_plain_greedy_search(tiny_models: TinyModels, name: str) -> None:
    pair, methods = tiny_models.pair(name), methods_of(name)
    assert len(tiny_models.prompt_tokens(pair, PROMPT)) > tiny.WINDOW
    right = tiny_models.generate(pair, "float64", PROMPT, COUNT)
    assert texts(tiny_models, name, RunConfig(methods, COUNT)) == dict.fromkeys(methods, right)


@pytest.mark.parametrize("name", tiny.WINDOWED)
def test_sampled_texts_are_those_of_greedy_search_under_the_same_noise(tiny_models: TinyModels, name: str) -> None:
    pair = tiny_models.pair(name)
    module, ids = tiny_models.plain(pair.target, "float64"), torch.tensor([tiny_models.prompt_tokens(pair, PROMPT)])
    settings = GenerationConfig(do_sample=False, max_new_tokens=COUNT, pad_token_id=0)
    noise: Any = [CoupledNoise(TEMPERATURE)]
    out = module.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings, logits_processor=noise)
    right = out[0, ids.shape[1] :].tolist()
    config = RunConfig(SAMPLING, COUNT, SEED, temperature=TEMPERATURE)
    assert texts(tiny_models, name, config) == dict.fromkeys(SAMPLING, right)

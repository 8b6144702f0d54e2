"""A pair's context is that of one of its models, which messages name."""

import copy
from dataclasses import replace

import pytest

from decoder.errors import PromptError
from decoder.run.config import RunConfig
from decoder.run.fitting import encoded
from tests.decoder.makers import TinyModels


def test_a_context_limit_names_the_model_that_sets_it(tiny_models: TinyModels) -> None:
    pair = tiny_models.loaded(tiny_models.pair("llama"), "float32").pair
    short = replace(pair, draft=copy.copy(pair.draft_model), context=16)
    short.draft_model.name, short.draft_model.context = "small", 16
    with pytest.raises(PromptError, match="the text exceeds small's context of 16 tokens"):
        encoded(short, "one", RunConfig(max_new_tokens=16))
    with pytest.raises(PromptError, match="the text exceeds target's context of 192 tokens"):
        encoded(pair, "one", RunConfig(max_new_tokens=192))

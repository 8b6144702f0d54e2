"""Texts of the families with compiled passes are those of transformers' `generate`."""

import random

import pytest

from decoder import RunConfig
from tests import tiny
from tests.decoder.makers import TinyModels

METHODS = ("dynatree", "auto", "linear")
WORDS = " ".join(tiny.SENTENCES).split()
TOKENS = 24


@pytest.mark.parametrize("texts", [8, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("family", ["neox", "llama", "windows", "half-windows", "qwen3"])
def test_texts_are_those_of_generate(tiny_models: TinyModels, family: str, texts: int) -> None:
    pair, luck = tiny_models.pair(family), random.Random(texts)
    config = RunConfig(methods=METHODS, max_new_tokens=TOKENS)
    for _ in range(texts):
        prompt = " ".join(luck.choices(WORDS, k=luck.randint(2, 24)))
        expected = tiny_models.generate(pair, "float32", prompt, TOKENS)
        played = tiny_models.play(pair, "float32", prompt, config)
        assert [played.tokens(method) for method in METHODS] == [expected] * len(METHODS), prompt

"""Long texts are scored in chunks, each at the positions after the previous one."""

import random

import pytest
import torch

from decoder.forward.near_tie import CHUNK, Judge
from tests import tiny
from tests.decoder.makers import TinyModels


@pytest.mark.parametrize("length", [CHUNK, CHUNK + 1, 2 * CHUNK + 88])
def test_a_clear_choice_far_into_a_text_is_no_near_tie(tiny_models: TinyModels, length: int) -> None:
    """A chunk at wrong positions would give other logits, and the difference would count as the error of the dtype."""
    model = tiny_models.loaded(tiny_models.pair("long"), "float32").pair.target
    generator = random.Random(0)
    prefix = [generator.randrange(tiny.VOCABULARY) for _ in range(length)]
    with torch.inference_mode():
        scores = model.hf.module(torch.tensor([prefix])).logits[0, -1]
    (first, second, *_) = scores.argsort(descending=True).tolist()
    assert float(scores[first] - scores[second]) > 0.01
    assert not Judge(model)(prefix, (first, second)).near_tie

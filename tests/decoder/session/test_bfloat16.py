"""Texts in bfloat16 differ from plain decoding only at near ties."""

import copy
import itertools

import numpy as np
import pytest
import torch

from decoder import DynaTree, RunConfig
from decoder.forward.near_tie import Judge
from decoder.methods import WHOLE, same_until
from tests.decoder.makers import TinyModels, methods_of
from tests.decoder.session.all_methods import PROMPT


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("llama", "T"),
        ("qwen3", "A small model guesses; "),
        ("gpt2", "The tree grows"),
        ("neox-strange", "T"),
    ],
)
def test_in_bfloat16_whatever_differs_is_a_near_tie(tiny_models: TinyModels, name: str, prompt: str) -> None:
    methods = tuple(method for method in methods_of(name) if same_until(method, {}, 0) == WHOLE)
    played = tiny_models.play(tiny_models.pair(name), "bfloat16", prompt, RunConfig(methods, 24, dynatree=DynaTree()))
    for method in methods:
        figures = played.figures(method)
        assert len(played.tokens(method)) == 24
        assert figures.identical_to_ar is (played.tokens(method) == played.tokens("ar"))
        assert figures.near_tie is (None if figures.identical_to_ar else True)
        assert (figures.first_difference_gap is None) is figures.identical_to_ar


def test_a_near_tie_is_judged_by_the_scores_in_float32(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("gpt2")
    model = tiny_models.loaded(pair, "bfloat16").pair.target
    prefix = tiny_models.prompt_tokens(pair, PROMPT)
    exact = tiny_models.oracle(pair, "float32").target_scores(tuple(prefix))
    order = sorted(range(len(exact)), key=exact.__getitem__)
    neighbours = [pair for pair in itertools.pairwise(order) if exact[pair[1]] - exact[pair[0]] < 1e-3]
    assert neighbours
    assert all(Judge(model)(prefix, rivals).near_tie for rivals in neighbours)
    assert not Judge(model)(prefix, (order[0], order[-1])).near_tie
    assert not Judge(model)(prefix, (order[-1], order[len(order) // 2])).near_tie


@pytest.mark.parametrize("name", ["neox", "llama"])
@torch.inference_mode()
def test_a_near_tie_is_within_the_error_of_the_forward_pass_that_wrote_the_text(
    tiny_models: TinyModels, name: str
) -> None:
    model = tiny_models.engine(name, "bfloat16").pair.target
    prefix = tiny_models.prompt_tokens(tiny_models.pair(name), PROMPT)
    exact = copy.deepcopy(model.hf.module).float()(torch.tensor([prefix])).logits[0]
    rows = range(len(prefix))
    found = model.forward(model.new_cache(len(prefix)), prefix, rows, np.tri(len(prefix), dtype=np.bool_))
    error = float((found - exact).abs().max())
    by_module = float((model.hf.module(torch.tensor([prefix])).logits[0].float() - exact).abs().max())
    assert 0 < error < by_module / 4
    scores, order = exact[-1].tolist(), exact[-1].argsort().tolist()
    for rivals in [*itertools.pairwise(order[::4]), (order[0], order[-1])]:
        gap = abs(scores[rivals[0]] - scores[rivals[1]])
        assert Judge(model)(prefix, rivals).near_tie is (gap <= 2 * error)
        assert Judge(model)(prefix, rivals, by_module=True).near_tie is (gap <= 2 * by_module)


@pytest.mark.parametrize("order", [1, -1])
def test_the_gap_of_two_tokens_is_the_higher_float32_score_minus_the_other(tiny_models: TinyModels, order: int) -> None:
    prefix = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    scores = tiny_models.oracle(tiny_models.pair("neox"), "float32").target_scores(tuple(prefix))
    first, second = (3, 250)[::order]
    verdict = Judge(tiny_models.engine("neox").pair.target)(prefix, (first, second))
    assert verdict.gap == pytest.approx(abs(scores[3] - scores[250]), abs=1e-4)

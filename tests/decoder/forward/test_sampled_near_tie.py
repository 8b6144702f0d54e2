"""Under sampling, two tokens are a near tie by their scores with noise, or if truncation depends on rounding."""

import pytest
import torch

from decoder.forward.near_tie import Judge, _at_edge
from decoder.sampling.gumbel_noise import GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from tests.decoder.makers import TinyModels

PROMPT = "The tree grows where the draft is sure"


def test_the_gap_is_that_of_logits_with_noise(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float32").sampled(4, Schedule(Sampling(1.1)))
    pair, noise = engine.pair, engine.gumbel_noise()
    prefix = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    with torch.inference_mode():
        logits = pair.target.hf.module(torch.tensor([prefix])).logits[0, -1:]
    scores = noise.scores(logits, [len(prefix)])[0]
    first, second = scores.topk(2).indices.tolist()
    found = Judge(pair.target, noise)(prefix, (first, second))
    assert found.gap == pytest.approx(float(scores[first] - scores[second]), abs=1e-4)
    assert found.gap != pytest.approx(float((logits[0, first] - logits[0, second]).abs()), abs=1e-2)
    assert not found.near_tie


def test_greedy_tokens_are_judged_without_noise(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    prefix = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    assert Judge(engine.pair.target, engine.gumbel_noise())(prefix, (3, 4)) == Judge(engine.pair.target)(prefix, (3, 4))


LOGITS = torch.tensor([4.0, 3.0, 2.0, 1.0])
CHANCES = (LOGITS / 0.8).softmax(-1)


@pytest.mark.parametrize(
    ("sampling", "token", "at_edge"),
    [
        (Sampling(0.8), 2, False),
        (Sampling(0.8, 2), 1, False),
        (Sampling(0.8, 0, float(CHANCES[:2].sum()) + 1e-4), 2, True),
        (Sampling(0.8, 0, float(CHANCES[:2].sum()) - 1e-4), 2, True),
        (Sampling(0.8, 0, float(CHANCES[:2].sum()) + 0.05), 2, False),
        (Sampling(0.8, 0, float(CHANCES[:2].sum()) - 0.05), 2, False),
        (Sampling(0.8, 0, 0.01), 0, False),
    ],
)
def test_a_token_that_truncation_all_but_keeps_or_drops_is_at_the_edge(
    sampling: Sampling, token: int, *, at_edge: bool
) -> None:
    assert _at_edge(LOGITS, token, sampling, error=0.001) == at_edge


def test_a_token_beside_the_last_of_top_k_is_at_the_edge() -> None:
    logits = torch.tensor([4.0, 3.0, 2.9999, 1.0])
    assert [_at_edge(logits, token, Sampling(0.8, 2), error=0.001) for token in range(4)] == [False, True, True, False]


def test_a_choice_that_truncation_decides_by_an_error_is_a_near_tie(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    pair = engine.pair
    prefix = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    with torch.inference_mode():
        logits = pair.target.hf.module(torch.tensor([prefix])).logits[0, -1:][0]
    order = logits.argsort(descending=True)
    top_p = float((logits.double() / 0.9).softmax(-1)[order[:3]].sum())
    fourth, first = int(order[3]), int(order[0])
    verdicts = [
        Judge(pair.target, GumbelNoise(1, Schedule(Sampling(0.9, 0, top_p + shift)), pair.vocabulary, logits.device))(
            prefix, (first, fourth)
        )
        for shift in (0.0, 0.02)
    ]
    assert [verdict.near_tie for verdict in verdicts] == [True, False]

"""Noise by position, seed and token, and the choices of target and draft under it."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.noise import METHODS, share
from decoder import RunConfig
from decoder.errors import ConfigError
from decoder.sampling.noise import (
    BITS,
    CACHED_ROWS,
    MADE_AT_ONCE,
    DraftProbabilities,
    GumbelNoise,
    bits_on_host,
    gumbel,
    random_bits,
    sharpness,
    signed,
    streams,
)
from decoder.sampling.settings import SAMPLING, Sampling, Schedule
from decoder.sampling.truncation import truncation_mask
from tests import sampled_reference
from tests.decoder.makers import TinyModels

CPU = torch.device("cpu")
VOCABULARY = 50
SETTINGS = [
    Sampling(0.0),
    Sampling(0.0, 3, 0.5),
    Sampling(0.7),
    Sampling(2.0, 0, 0.5),
    Sampling(0.6, 5),
    Sampling(1.3, 7, 0.8),
    Sampling(0.01, 0, 0.01),
    Sampling(1.0, 1),
    Sampling(1.0, 500, 0.95),
]


def rows(count: int, seed: int, vocabulary: int = VOCABULARY) -> torch.Tensor:
    return 3 * torch.randn((count, vocabulary), generator=torch.Generator().manual_seed(seed))


def gumbel_noise(sampling: Sampling, seed: int = 5, vocabulary: int = VOCABULARY) -> GumbelNoise:
    return GumbelNoise(seed, Schedule(sampling), vocabulary, CPU)


@pytest.mark.parametrize("sampling", SETTINGS)
def test_the_choice_is_the_largest_kept_logit_under_noise(sampling: Sampling) -> None:
    positions = [3, 4, 4, 90, 7, 3, 1000, 12]
    logits, noise = rows(len(positions), 1), gumbel_noise(sampling)
    found = noise.choices(logits, positions)
    if sampling.greedy:
        assert torch.equal(noise.estimate(positions).scores(logits), logits), "logits are as they were"
    for row, position, token in zip(logits, positions, found, strict=True):
        scores = row.double() + sampling.temperature * sampled_reference.noise(5, position, VOCABULARY)
        if sampling.temperature:
            scores[~sampled_reference.kept(row, sampling)] = -torch.inf
        assert token == int(scores.argmax())


@pytest.mark.parametrize("sampling", [each for each in SETTINGS if each.truncates])
def test_truncation_is_that_of_transformers(sampling: Sampling) -> None:
    logits = rows(200, 2)
    expected = torch.stack([sampled_reference.kept(row, sampling) for row in logits])
    assert torch.equal(truncation_mask(logits, sampling), expected)


@pytest.mark.parametrize("sampling", [each for each in SETTINGS if each.truncates])
def test_of_equal_logits_the_lower_ids_are_kept_and_chosen_alike_without_sorting(sampling: Sampling) -> None:
    logits = rows(300, 3).round()
    stays, positions = truncation_mask(logits, sampling), list(range(300))
    scores = gumbel_noise(sampling).scores(logits, positions)
    expected = scores.masked_fill(~stays, -torch.inf).argmax(-1).tolist()
    assert gumbel_noise(sampling).choices(logits, positions) == expected
    for row, keeps in zip(logits, stays, strict=True):
        least = row[keeps].min()
        ids = [token for token in range(VOCABULARY) if row[token] == least]
        assert all(keeps[one] >= keeps[other] for one, other in pairwise(ids))


def test_over_seeds_choices_follow_the_target_s_distribution() -> None:
    logits, sampling, draws = rows(1, 4, 8), Sampling(0.8, 6, 0.95), 4000
    counts = np.zeros(8)
    for seed in range(draws):
        counts[gumbel_noise(sampling, seed, 8).choices(logits, [17])[0]] += 1
    weights = (logits[0].double() / 0.8).softmax(-1) * sampled_reference.kept(logits[0], sampling)
    expected = draws * (weights / weights.sum()).numpy()
    assert not counts[expected == 0].any()
    seen = expected > 0
    chi_squared = (((counts - expected)[seen]) ** 2 / expected[seen]).sum()
    assert chi_squared < 25.7  # at most 5 degrees of freedom: false alarm rate 1e-4


def test_drafts_rank_kept_tokens_by_their_score_and_others_behind_them() -> None:
    sampling, logits = Sampling(0.9, 0, 0.6), rows(20, 6)
    positions = list(range(20))
    chances = gumbel_noise(sampling).estimate(positions).scores(logits)
    stays = truncation_mask(logits, sampling)
    scores = sharpness(0.9) * gumbel_noise(sampling).scores(logits, positions)
    assert torch.allclose(chances[stays], scores[stays])
    assert all(row[keeps].min() > row[~keeps].max() for row, keeps in zip(chances, stays, strict=True))
    assert chances.isfinite().all()


def test_a_token_s_noise_is_what_its_score_has_beyond_its_logit_in_temperatures() -> None:
    made, tokens = gumbel_noise(Sampling(0.7)), [3, 41, 7]
    scores = made.scores(torch.zeros((1, VOCABULARY)), [12])[0]
    assert made.noise_of(12, tokens) == pytest.approx([float(scores[token]) / 0.7 for token in tokens])
    assert gumbel_noise(Sampling(0.0)).noise_of(12, tokens) == [0.0, 0.0, 0.0]


def test_noise_is_known_from_a_position_on_where_something_is_random_there() -> None:
    schedule = Schedule(Sampling(0.0))
    schedule.turn(5, Sampling(0.7))
    schedule.turn(9, Sampling(0.0))
    sampled = [GumbelNoise(5, schedule, VOCABULARY, CPU).noise_from(position) is not None for position in (2, 8, 9)]
    assert sampled == [True, True, False]
    unknown: DraftProbabilities = DraftProbabilities(schedule)
    assert unknown.noise_from(8) is None


def test_a_setting_that_changes_before_its_position_was_chosen_counts() -> None:
    schedule = Schedule(Sampling(0.5))
    both, logits = GumbelNoise(5, schedule, VOCABULARY, CPU), rows(40, 9)
    positions = list(range(40))
    before = both.choices(logits, positions)
    schedule.turn(10, Sampling(1.9))
    expected = gumbel_noise(Sampling(1.9)).choices(logits, positions)
    assert both.choices(logits, positions) == before[:10] + expected[10:]


def test_the_noise_of_a_position_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    whole = gumbel_noise(Sampling(0.5))
    made = whole._computed

    def count(positions: list[int]) -> torch.Tensor:
        asked.extend(positions)
        return made(positions)

    monkeypatch.setattr(whole, "_computed", count)
    for start in range(300):
        window = list(range(start, start + 6))
        whole.estimate(window)
        whole.choices(rows(6, start), window)
    assert asked == list(range(len(asked)))
    assert 305 <= len(asked) < 305 + MADE_AT_ONCE
    assert len(whole._rows) <= CACHED_ROWS + MADE_AT_ONCE


SEEDS = (0, 1, 7, 2**32 - 1)
POSITIONS = np.array([0, 1, 2, 77, 4095])
TOKENS = 40


def bits(seed: int, positions: np.ndarray, tokens: int = TOKENS) -> np.ndarray:
    return random_bits(streams(np.array([seed]), positions), np.arange(tokens))


@pytest.mark.parametrize("seed", SEEDS)
def test_bits_are_splitmix64_s_over_seed_position_and_token(seed: int) -> None:
    expected = [
        [int(sampled_reference.uniform(seed, int(position), token) * 2**BITS) for token in range(TOKENS)]
        for position in POSITIONS
    ]
    assert bits(seed, POSITIONS).tolist() == expected


@pytest.mark.parametrize("seed", [*SEEDS, -1, 2**63, 2**64 + 5])
def test_bits_made_in_place_are_the_same(seed: int) -> None:
    positions = [*map(int, POSITIONS), 2**40]
    found = bits_on_host(seed, positions, 300)
    assert found.tolist() == bits(signed(seed), np.array(positions), 300).tolist()


def test_noise_does_not_depend_on_what_is_computed_beside_it() -> None:
    together = gumbel(3, POSITIONS.tolist(), TOKENS)
    for row, position in enumerate(POSITIONS.tolist()):
        assert gumbel(3, [position], TOKENS)[0].tolist() == together[row].tolist()
        assert gumbel(3, [position], 11)[0].tolist() == together[row, :11].tolist()


@pytest.mark.parametrize("method", METHODS)
def test_noise_takes_a_part_of_the_time(tiny_models: TinyModels, method: str) -> None:
    assert 0 < share(tiny_models.engine("neox"), "The tree grows", method) < 1


def test_noise_is_gumbel_distributed_and_independent_over_seeds_positions_and_tokens() -> None:
    rows = np.concatenate([gumbel(seed, range(40), 500) for seed in range(5)])
    assert len(np.unique(rows)) == rows.size
    correlations = np.corrcoef(rows) - np.eye(len(rows))
    # 19,900 pairs of 500 numbers: five standard deviations.
    assert np.abs(correlations).max() < 5 / math.sqrt(500)
    assert abs(np.corrcoef(rows[:, :-1].ravel(), rows[:, 1:].ravel())[0, 1]) < 5 / math.sqrt(rows.size)
    cumulative = np.exp(-np.exp(-np.sort(rows.ravel())))
    distance = np.abs(cumulative - (np.arange(rows.size) + 0.5) / rows.size).max()
    assert distance < 2 / math.sqrt(rows.size)  # Kolmogorov-Smirnov; false alarm rate below 7e-4


# Settings


@pytest.mark.parametrize(
    "given",
    [
        *({"temperature": value} for value in (-0.1, 2.1, math.nan, math.inf)),
        {"top_k": -1},
        *({"top_p": value} for value in (0.0, 1.1, math.nan)),
    ],
)
def test_impossible_settings_are_refused_with_what_is_possible(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(given))} is .*; give "):
        RunConfig(**given)


def test_changes_are_in_force_from_their_positions_on() -> None:
    hot, cold = Sampling(1.0), Sampling(0.3)
    schedule = Schedule()
    schedule.turn(10, cold)
    schedule.turn(20, hot)
    schedule.turn(20, cold)
    schedule.turn(30, Sampling())
    heats = [schedule.at(place).temperature for place in (0, 9, 10, 19, 20, 29, 30, 99)]
    assert heats == [0, 0, 0.3, 0.3, 0.3, 0.3, 0, 0]
    assert [schedule.greedy_from(place) for place in (0, 9, 29, 30)] == [False, False, False, True]
    assert [(start, sampling.temperature) for start, sampling in schedule.in_force(20)] == [(20, 0.3), (30, 0.0)]


def test_a_run_is_greedy_unless_a_temperature_is_given_and_truncates_only_where_something_is_random() -> None:
    assert RunConfig().sampling.greedy
    assert RunConfig(top_p=0.5, top_k=3).sampling.greedy
    assert not RunConfig(temperature=0.6).sampling.greedy
    assert RunConfig(top_p=0.9).turned("temperature", 0.7, SAMPLING).sampling == Sampling(0.7, 0, 0.9)
    found = [each.truncates for each in (Sampling(0.0, 5, 0.9), Sampling(0.5, 5), Sampling(0.5, 0, 0.9), Sampling(0.5))]
    assert found == [False, True, True, False]

"""Noise depends only on seed, position and token."""

import math

import numpy as np
import pytest
import torch

from decoder.sampling.noise import BITS, bits_on_host, gumbel, gumbel_on_device, random_bits, signed, streams
from tests import sampled_reference

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


@pytest.mark.parametrize("seed", SEEDS)
def test_integers_and_uniforms_are_the_same_in_both_libraries(seed: int) -> None:
    found = random_bits(streams(torch.tensor([seed]), torch.tensor(POSITIONS)), torch.arange(TOKENS))
    assert found.tolist() == bits(seed, POSITIONS).tolist()
    uniforms = (bits(seed, POSITIONS).astype(np.float64) + 0.5) * 2.0**-BITS
    assert ((found.to(torch.float64) + 0.5) * 2.0**-BITS).tolist() == uniforms.tolist()


@pytest.mark.parametrize("seed", [*SEEDS, -1, 2**63, 2**64 + 5])
def test_bits_made_in_place_are_the_same(seed: int) -> None:
    positions = [*map(int, POSITIONS), 2**40]
    found = bits_on_host(seed, positions, 300)
    assert found.tolist() == bits(signed(seed), np.array(positions), 300).tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_logarithms_differ_by_rounding_only(seed: int) -> None:
    one = gumbel(seed, POSITIONS.tolist(), 5000)
    other = gumbel_on_device(torch.tensor([seed]), torch.tensor(POSITIONS), torch.arange(5000)).numpy()
    inner = np.exp(-one)  # -log(uniform); the outer logarithm propagates its rounding
    assert np.abs(one - other).max() <= 4 * np.finfo(np.float64).eps * max(1.0, np.abs(one).max(), inner.max())


def test_noise_does_not_depend_on_what_is_computed_beside_it() -> None:
    together = gumbel(3, POSITIONS.tolist(), TOKENS)
    for row, position in enumerate(POSITIONS.tolist()):
        assert gumbel(3, [position], TOKENS)[0].tolist() == together[row].tolist()
        assert gumbel(3, [position], 11)[0].tolist() == together[row, :11].tolist()


def test_no_uniform_is_0_or_1() -> None:
    lowest, highest = 0.5 * 2.0**-BITS, (2**BITS - 0.5) * 2.0**-BITS
    assert lowest > 0
    assert highest < 1
    assert math.isfinite(-math.log(-math.log(lowest)))
    assert math.isfinite(-math.log(-math.log(highest)))


def test_seeds_positions_and_tokens_are_independent() -> None:
    rows = np.concatenate([gumbel(seed, range(40), 500) for seed in range(5)])
    assert len(np.unique(rows)) == rows.size
    correlations = np.corrcoef(rows) - np.eye(len(rows))
    # 19,900 pairs of 500 numbers: five standard deviations.
    assert np.abs(correlations).max() < 5 / math.sqrt(500)
    assert abs(np.corrcoef(rows[:, :-1].ravel(), rows[:, 1:].ravel())[0, 1]) < 5 / math.sqrt(rows.size)


def test_it_is_gumbel_distributed() -> None:
    noise = np.sort(gumbel(11, range(100), 1000).ravel())
    cumulative = np.exp(-np.exp(-noise))
    distance = np.abs(cumulative - (np.arange(noise.size) + 0.5) / noise.size).max()
    assert distance < 2 / math.sqrt(noise.size)  # Kolmogorov-Smirnov; false alarm rate below 7e-4

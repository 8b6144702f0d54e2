"""The statistical test of laws accepts samples of the law, and rejects for each of its three reasons."""

from collections import Counter

import numpy as np
import pytest

from tests.decoder.laws.block_efficiency import efficiency
from tests.decoder.laws.joint_law import ALPHA, compare

LAW = {"0": 0.5, "1": 0.3, "2": 0.2, "3": 0.0}


def sample(law: dict[str, float], texts: int, seed: int = 0) -> Counter[str]:
    found = np.random.default_rng(seed).multinomial(texts, list(law.values()))
    return Counter(dict(zip(law, found.tolist(), strict=True)))


def test_what_follows_the_law_passes() -> None:
    assert all(compare(sample(LAW, 500, seed), LAW).fits for seed in range(200))


def test_false_alarms_are_as_rare_as_pearson_s_distance_says() -> None:
    chances = [compare(sample(LAW, 500, seed), LAW).chance for seed in range(2000)]
    assert np.mean(np.array(chances) < 0.1) == pytest.approx(0.1, abs=0.025)


def test_one_impossible_text_fails() -> None:
    found = compare({"0": 500, "1": 300, "2": 200, "3": 1}, LAW)
    assert found.impossible == 1
    assert not found.fits
    assert compare({"0": 500, "1": 300, "2": 200, "unheard": 1}, LAW).impossible == 1


def test_another_law_fails_by_both_distances() -> None:
    found = compare(sample({"0": 0.4, "1": 0.4, "2": 0.2}, 20_000), LAW)
    assert found.chance < ALPHA / 2
    assert found.distance > found.bound
    assert not found.fits


def test_total_variation_is_that_of_the_shares() -> None:
    found = compare({"0": 60, "1": 20, "2": 20}, LAW)
    assert found.texts == 100
    assert found.distance == pytest.approx(0.1)


def test_rare_texts_are_taken_together() -> None:
    law = {str(number): 0.001 for number in range(100)} | {"often": 0.9}
    assert compare({"7": 10, "often": 90}, law).chance == pytest.approx(1.0)
    assert compare({"7": 100}, law).chance < ALPHA


def test_few_texts_tell_nothing() -> None:
    assert compare({"0": 2, "1": 1}, LAW).chance == 1.0


def test_z_of_tokens_a_round_is_their_difference_over_its_spread() -> None:
    found = efficiency({"rounds": 4, "expected": 8.0, "realised": 12.0, "squares": 4.0})
    assert (found.rounds, found.expected, found.realised, found.z) == (4, 2.0, 3.0, 2.0)
    assert found.chance == pytest.approx(0.0455, abs=1e-4)

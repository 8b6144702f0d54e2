"""Random numbers are reproducible, and events of probability 0 never occur."""

import numpy as np
import pytest

from decoder.errors import ModelError
from decoder.verify.lossless.random_generator import PhiloxGenerator


class Lowest:
    """A generator whose uniform numbers are the smallest possible."""

    def random(self) -> float:
        return 0.0


class Highest:
    """A generator whose uniform numbers are the largest possible."""

    def random(self) -> float:
        return 1 - 2**-53


def over(source: Lowest | Highest) -> PhiloxGenerator:
    generator = PhiloxGenerator(0)
    generator._generator = source  # type: ignore[assignment]  # only `random` of numpy's generator is needed
    return generator


def test_a_uniform_of_zero_does_not_accept_the_impossible() -> None:
    assert not over(Lowest()).bernoulli(0.0)


def test_the_highest_uniform_accepts_the_certain() -> None:
    assert over(Highest()).bernoulli(1.0)


@pytest.mark.parametrize("source", [Lowest(), Highest()])
@pytest.mark.parametrize("weights", [[0, 0.3, 0.4, 0], [0, 5e-324, 0], [0, 0.1, 0.2, 0.3, 0.1]])
def test_no_choice_has_weight_zero(source: Lowest | Highest, weights: list[float]) -> None:
    assert weights[over(source).choice(np.array(weights))] > 0


def test_nothing_to_choose_from_is_refused() -> None:
    with pytest.raises(ValueError, match="all weights are 0"):
        PhiloxGenerator(0).choice(np.zeros(3))


def test_nan_is_refused_and_not_compared() -> None:
    with pytest.raises(ModelError, match="probability is not finite"):
        PhiloxGenerator(0).bernoulli(float("nan"))
    with pytest.raises(ModelError, match="probability is not finite"):
        PhiloxGenerator(0).choice(np.array([0.5, np.nan]))


@pytest.mark.parametrize("seed", [0, -1, 1 << 80])
def test_one_seed_and_stream_give_one_sequence(seed: int) -> None:
    one, same, other = (PhiloxGenerator(seed, stream) for stream in (1, 1, 2))
    numbers = [[generator.integers(1000) for _ in range(20)] for generator in (one, same, other)]
    assert numbers[0] == numbers[1] != numbers[2]


def test_choices_come_in_proportion_to_their_weights() -> None:
    generator, weights = PhiloxGenerator(7), np.array([1.0, 0, 2, 5])
    counts = np.bincount([generator.choice(weights) for _ in range(4000)], minlength=4)
    assert counts / 4000 == pytest.approx(weights / 8, abs=0.03)  # 3.8 standard deviations

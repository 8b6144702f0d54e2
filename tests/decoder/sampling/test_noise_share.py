"""The benchmark of the share of time spent on noise."""

import pytest

from benchmarks.noise import METHODS, share
from tests.decoder.makers import TinyModels


@pytest.mark.parametrize("method", METHODS)
def test_noise_takes_a_part_of_the_time(tiny_models: TinyModels, method: str) -> None:
    assert 0 < share(tiny_models.loaded(tiny_models.pair("neox"), "float32"), "The tree grows", method) < 1

"""The measured speed of a CPU: bytes and operations over the shortest time."""

from collections.abc import Callable
from itertools import accumulate, chain, repeat

import pytest
import torch

from decoder.system import cpu_speed as speed


def clock_of(*lengths_s: float) -> Callable[[], float]:
    """Clock with which each measured repetition takes the next of these times; then 1 s each."""
    steps = chain.from_iterable((0.0, length) for length in chain(lengths_s, repeat(1.0)))
    return iter(accumulate(steps)).__next__


def test_the_bandwidth_is_bytes_over_the_shortest_time() -> None:
    assert speed.read_bytes_per_s(4000, clock_of(0.3, 0.1, 0.2)) == pytest.approx(40_000)


def test_no_more_is_read_than_what_fits_in_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "LARGEST", 800)
    assert speed.read_bytes_per_s(10**12, clock_of(0.5)) == pytest.approx(1600)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_rate_of_arithmetic_is_that_of_products_in_the_dtype(dtype: torch.dtype) -> None:
    operations = 2 * speed.ROWS * speed.WIDTH**2
    assert speed.flops_per_s(dtype, clock_of(0.5, 0.5)) == pytest.approx(2 * operations)


def test_short_work_is_repeated_until_the_time_is_up() -> None:
    clock = clock_of(*[0.01] * 3, 0.005, *[0.01] * 20)
    assert speed.read_bytes_per_s(4000, clock) == pytest.approx(4000 / 0.005)

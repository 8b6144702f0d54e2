"""Threads, waits and memory speed of a CPU."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import accumulate, chain, repeat

import pytest
import torch

from decoder.system import cpu_speed as speed
from decoder.system.openmp import SPIN_COUNT, VARIABLE, spin_briefly, waiting_words
from dynatui import __main__ as program


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


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither variable is set, and the test's values do not stay."""
    monkeypatch.setenv(VARIABLE, "")
    for name in (VARIABLE, "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)


def test_threads_spin_briefly_by_default() -> None:
    spin_briefly()
    assert os.environ[VARIABLE] == str(SPIN_COUNT)


@pytest.mark.parametrize("name", [VARIABLE, "OMP_WAIT_POLICY"])
def test_a_value_of_the_user_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "7")
    before = dict(os.environ)
    spin_briefly()
    assert dict(os.environ) == before


def test_the_program_sets_it_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = []

    def run() -> int:
        found.append(os.environ.get(VARIABLE))
        return 0

    monkeypatch.setattr(program, "_run", run)
    assert program.main() == 0
    assert found == [str(SPIN_COUNT)]


@pytest.mark.parametrize(
    ("name", "words"),
    [(VARIABLE, "GOMP_SPINCOUNT=7"), ("OMP_WAIT_POLICY", "OMP_WAIT_POLICY=7"), ("X", "GOMP_SPINCOUNT is not set")],
)
def test_the_report_names_the_variable_in_force(monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    monkeypatch.setenv(name, "7")
    assert waiting_words().endswith(words)


@pytest.mark.skipif(sys.platform != "linux", reason="torch has GNU's OpenMP only on Linux")
def test_torch_reads_the_value_that_the_process_has_set_itself() -> None:
    code = "from decoder.system.openmp import spin_briefly; spin_briefly(); import torch"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert f"GOMP_SPINCOUNT = '{SPIN_COUNT}'" in told.stderr

"""Threads, waits and memory speed of a CPU: the number of threads is chosen by a trial, within the cores of the process
and the user's settings.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder import RunConfig, decode
from decoder.engine import Engine
from decoder.run import expected as speed
from decoder.run import race
from decoder.system import cpu_threads
from decoder.system.cpu_threads import SWITCH_S, choose_threads, fewest_worth_it, quick_switches, usable_cores
from decoder.system.openmp import SPIN_COUNT, VARIABLE, spin_briefly, waiting_words
from dynatui import __main__ as program
from tests.decoder.makers import TinyModels


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with four cores and no user settings."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(cpu_threads, "usable_cores", lambda: 4)
    torch.set_num_threads(4)


@dataclass
class Machine:
    """A simulated machine on which a pass takes `seconds` of the number of threads; no other time passes."""

    seconds: Callable[[int], float]
    now: float = 0.0
    tried: list[int] = field(default_factory=list)

    def choose(self, given: int | None = None) -> int:
        """The number of threads that the trial chooses."""
        return choose_threads(self._run, given, clock=lambda: self.now)

    def _run(self) -> None:
        self.tried.append(torch.get_num_threads())
        self.now += self.seconds(torch.get_num_threads())


def slower_by_threads(threads: int) -> float:
    return 0.001 * threads


def faster_by_threads(threads: int) -> float:
    return 0.008 / threads


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize(
    ("seconds", "before", "given", "best"),
    [
        (slower_by_threads, 4, None, 1),
        (faster_by_threads, 4, None, 4),
        (faster_by_threads, 2, None, 2),
        (faster_by_threads, 1, 4, 4),
    ],
    ids=["threads that only wait for each other", "threads that pay", "as torch was given", "tried again"],
)
def test_threads_that_pay_are_used(seconds: Callable[[int], float], before: int, given: int | None, best: int) -> None:
    torch.set_num_threads(before)
    assert Machine(seconds).choose(given) == best
    assert torch.get_num_threads() == best


@pytest.mark.usefixtures("free")
def test_no_more_threads_are_tried_than_there_are_cores_and_none_if_the_environment_says_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_threads, "usable_cores", lambda: 3)
    machine = Machine(faster_by_threads)
    machine.choose()
    assert set(machine.tried) == {1, 2, 3}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    torch.set_num_threads(3)
    assert Machine(slower_by_threads).choose() == torch.get_num_threads() == 3


@pytest.mark.usefixtures("free")
def test_a_trial_of_a_slow_model_is_short() -> None:
    machine = Machine(lambda _: 0.16)
    machine.choose()
    # Each number of threads has one warm-up run; two more runs use up its share of time.
    assert machine.tried == [1, 2, 4] * 3


@pytest.mark.usefixtures("free")
def test_what_a_disturbed_run_took_does_not_decide() -> None:
    disturbed = Machine(lambda threads: 0.008 / threads + (0.1 if len(disturbed.tried) in (3, 9) else 0.0))
    assert disturbed.choose() == 4
    assert disturbed.tried[2] == disturbed.tried[8] == 4


@pytest.mark.parametrize(
    ("seconds", "fewest"),
    [
        ({1: 1.0}, 1),
        ({1: 1.0, 2: 0.97}, 1),
        ({1: 1.0, 2: 0.6, 4: 0.59}, 2),
        ({1: 1.0, 2: 0.98, 4: 0.5}, 4),
        ({1: 1.0, 2: 3.0, 4: 9.0}, 1),
    ],
)
def test_more_threads_must_bring_enough(seconds: dict[int, float], fewest: int) -> None:
    assert fewest_worth_it(seconds) == fewest


def test_cpus_that_the_process_may_not_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert usable_cores() == 1


@pytest.mark.parametrize(("now", "known"), [(1, {}), (4, {512: "costs"})])
def test_at_most_the_given_threads_are_tried_and_costs_with_another_number_are_forgotten(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, now: int, known: dict[int, Any]
) -> None:
    costs: Any = {512: "costs"}
    pair, given = replace(tiny_models.engine("neox", "float64"), costs=costs, threads=7), list[int]()
    torch.set_num_threads(4)

    def choose(_: object, most: int) -> int:
        given.append(most)
        return now

    monkeypatch.setattr("decoder.engine.choose_threads", choose)
    pair.settle_threads()
    assert (pair.costs, given) == (known, [7])


@pytest.mark.parametrize("exact", [True, False])
def test_a_gpu_and_an_exact_pair_are_not_asked_for_threads(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, *, exact: bool
) -> None:
    engine = replace(tiny_models.engine("neox", "float64"), exact=exact)
    if not exact:
        monkeypatch.setattr(engine.pair.target, "device", torch.device("cuda"))
    monkeypatch.setattr("decoder.engine.choose_threads", lambda *_: pytest.fail("were tried"))
    engine.settle_threads()


def test_every_text_begins_with_as_many_threads_as_are_free(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, settled = tiny_models.engine("neox", "float64"), list[Engine]()
    monkeypatch.setattr(Engine, "settle_threads", lambda engine: settled.append(engine))
    for _ in range(2):
        list(decode(pair, "The tree grows", RunConfig(("ar",), 2)))
    assert settled == [pair, pair]


@pytest.mark.parametrize(
    ("pair", "dtype", "awake_s", "woken"),
    [
        ("neox", "float64", 0.0, 4),
        ("neox", "float64", 60.0, 0),
        ("gpt2", "float32", 0.0, 4),
        ("neox", "float32", 0.0, 0),
    ],
    ids=["after a sleep", "right after another", "of a module", "not for compiled passes"],
)
def test_torch_s_threads_are_woken_before_a_round_after_a_sleep_alone(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, pair: str, dtype: str, awake_s: float, woken: int
) -> None:
    """Otherwise the time to wake the threads would count as the round's time."""
    wakes: list[bool] = []
    monkeypatch.setattr(cpu_threads, "warm_threads", lambda: wakes.append(True))
    monkeypatch.setattr(cpu_threads, "AWAKE_S", awake_s)
    list(decode(tiny_models.engine(pair, dtype), "a b c", RunConfig(("ar",), 4)))
    assert len(wakes) == woken


def test_threads_switch_quickly_while_a_gpu_decodes_and_as_before_afterwards_and_on_a_cpu() -> None:
    before, found = sys.getswitchinterval(), list[float]()
    with suppress(RuntimeError), quick_switches(torch.device("cuda")):
        found.append(sys.getswitchinterval())
        raise RuntimeError("broken off")
    assert found == pytest.approx([SWITCH_S])
    assert sys.getswitchinterval() == before
    with quick_switches(torch.device("cpu")):
        assert sys.getswitchinterval() == before


def test_threads_switch_quickly_from_a_run_s_first_event_to_its_last(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, pair = sys.getswitchinterval(), tiny_models.engine("neox")
    monkeypatch.setattr(race, "quick_switches", lambda _: quick_switches(torch.device("cuda")))
    events = decode(pair, "The tree", RunConfig(("ar",), 4))
    found = [sys.getswitchinterval() for _ in events]
    assert found[:-1] == pytest.approx([SWITCH_S] * (len(found) - 1))
    assert found[-1] == before
    events = decode(pair, "The tree", RunConfig(("ar",), 4))
    next(events)
    events.close()  # type: ignore[attr-defined]  # it is a generator
    assert sys.getswitchinterval() == before


ON_CUDA = """
import torch
from decoder.run import race
from decoder.system.cpu_threads import quick_switches
race.quick_switches = lambda _: quick_switches(torch.device("cuda"))
"""
OPEN_AT_EXIT = """
from decoder import RunConfig, decode, load_pair
run = decode(load_pair(device="cpu"), "The tree", RunConfig(("ar",), 4))
next(run)
"""


@pytest.mark.parametrize("before", ["", ON_CUDA], ids=["on a CPU", "on a device"])
def test_a_run_that_a_program_leaves_open_at_its_exit_ends_without_a_message(before: str) -> None:
    command = [sys.executable, "-c", before + OPEN_AT_EXIT]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


def clock_of(*lengths_s: float) -> Callable[[], float]:
    """Clock with which each measured repetition takes the next of these times; then 1 s each."""
    steps = chain.from_iterable((0.0, length) for length in chain(lengths_s, repeat(1.0)))
    return iter(accumulate(steps)).__next__


def test_the_bandwidth_is_bytes_over_the_shortest_time() -> None:
    assert speed.read_bytes_per_s(4000, clock_of(0.3, 0.1, 0.2)) == pytest.approx(40_000)


def test_no_more_is_read_than_what_fits_in_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "LARGEST_READ", 800)
    assert speed.read_bytes_per_s(10**12, clock_of(0.5)) == pytest.approx(1600)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_rate_of_arithmetic_is_that_of_products_in_the_dtype(dtype: torch.dtype) -> None:
    operations = 2 * speed.PRODUCT_ROWS * speed.PRODUCT_WIDTH**2
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


OPENMP = list(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))


@pytest.mark.skipif(not OPENMP, reason="torch has no OpenMP of GNU here")
def test_torch_s_openmp_reads_the_value_that_the_process_has_set_itself() -> None:
    load = f"ctypes.CDLL({str(OPENMP[0])!r})"
    code = f"import ctypes; from decoder.system.openmp import spin_briefly; spin_briefly(); {load}"
    environment = {**os.environ, "OMP_DISPLAY_ENV": "VERBOSE"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert f"GOMP_SPINCOUNT = '{SPIN_COUNT}'" in done.stderr

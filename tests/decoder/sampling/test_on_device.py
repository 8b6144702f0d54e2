"""Sampling in graphs equals sampling on the host: the same integers and uniforms, choices and probabilities."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from decoder.sampling.noise import (
    BITS,
    DeviceSampling,
    GumbelNoise,
    gumbel,
    gumbel_on_device,
    random_bits,
    signed,
    streams,
)
from decoder.sampling.settings import Sampling, Schedule
from decoder.system.device import Graphs
from decoder.verify.verifier import CoupledDeviceVerifier, device_verifier
from tests.decoder.session.cuda_graph.on_gpu import gpu
from tests.fake_cuda.recording import record

CPU = torch.device("cpu")
SEEDS = (0, 1, 123456789, 2**63 - 1, 2**63, 2**64 - 3)
PLACES = (0, 1, 2, 77, 4095, 2**31, 2**40)
VOCABULARY = 1000
Repeat = Callable[[Callable[[], None]], Callable[[], None]]
"""Returns a function that repeats the given work, as a graph replay does."""


def in_a_graph(work: Callable[[], None]) -> Callable[[], None]:
    return Graphs(torch.device("cuda")).capture(work, lambda: None)


DEVICES: Sequence[Any] = [
    pytest.param("cpu", record, id="recorded"),
    pytest.param("cuda", in_a_graph, id="captured", marks=[gpu, pytest.mark.gpu]),
]


def uniforms(bits: Tensor) -> Tensor:
    return (bits.to(torch.float64) + 0.5) * 2.0**-BITS


@pytest.mark.parametrize(("device", "repeat"), DEVICES)
def test_integers_and_uniforms_within_a_graph_are_numpy_s_bit_for_bit_for_any_seed_and_place(
    device: str, repeat: Repeat
) -> None:
    """One graph serves all seeds and positions, because it reads them from tensors."""
    seed, places = (torch.zeros(count, dtype=torch.int64, device=device) for count in (1, len(PLACES)))
    tokens = torch.arange(VOCABULARY, device=device)
    bits, parts = (
        torch.zeros(len(PLACES), VOCABULARY, dtype=kind, device=device) for kind in (torch.int64, torch.float64)
    )

    def work() -> None:
        bits.copy_(random_bits(streams(seed, places), tokens))
        parts.copy_(uniforms(bits))

    replay = repeat(work)
    for number in SEEDS:
        for order in (PLACES, PLACES[::-1]):
            seed.fill_(signed(number))
            places.copy_(torch.tensor(order))
            replay()
            right = random_bits(streams(np.array([signed(number)]), np.array(order)), np.arange(VOCABULARY))
            assert np.array_equal(bits.cpu().numpy(), right)
            assert np.array_equal(parts.cpu().numpy(), (right.astype(np.float64) + 0.5) * 2.0**-BITS)
    assert 0 < float(parts.min()) < float(parts.max()) < 1


@pytest.mark.parametrize(("device", "repeat"), DEVICES)
def test_the_noise_within_a_graph_is_numpy_s_but_for_the_last_digits_of_logarithms(device: str, repeat: Repeat) -> None:
    seed = torch.tensor([signed(SEEDS[-1])], device=device)
    places, tokens = torch.tensor(PLACES, device=device), torch.arange(VOCABULARY, device=device)
    found = torch.zeros(len(PLACES), VOCABULARY, dtype=torch.float64, device=device)

    def work() -> None:
        found.copy_(gumbel_on_device(seed, places, tokens))

    repeat(work)()
    right = gumbel(SEEDS[-1], PLACES, VOCABULARY)
    # Each logarithm rounds twice; the outer one is imprecise near 0, where the inner one is near 1.
    steps = np.abs(found.cpu().numpy() - right) / np.maximum(np.spacing(np.abs(right)), np.spacing(1.0))
    assert steps.max() <= 4


@pytest.mark.parametrize(("device", "repeat"), DEVICES)
def test_one_graph_serves_all_seeds_and_settings(device: str, repeat: Repeat) -> None:
    sampling, schedule = DeviceSampling(torch.device(device), 64), Schedule(Sampling(0.5))
    schedule.turn(20, Sampling(2.0))
    places, found = torch.arange(18, 23, device=device), torch.zeros(5, VOCABULARY, device=device)

    def work() -> None:
        found.copy_(sampling.noise(places, VOCABULARY))

    replay = repeat(work)
    for seed in SEEDS:
        sampling.follow(seed, schedule, 0)
        replay()
        temperatures = np.array([[0.5], [0.5], [2.0], [2.0], [2.0]])
        right = gumbel(seed, range(18, 23), VOCABULARY) * temperatures
        np.testing.assert_allclose(found.cpu().numpy(), right, rtol=1e-6, atol=1e-6)


def test_a_seed_is_the_same_text_whatever_its_sign_is_in_64_bits() -> None:
    assert [signed(seed) for seed in (0, 5, 2**63 - 1, 2**63, 2**64 - 1, 2**64)] == [0, 5, 2**63 - 1, -(2**63), -1, 0]


# Settings by position


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """A schedule whose settings change at some of the first 12 positions."""
    some = st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.3, 0.6, 1.0, 2.0]),
        top_k=st.sampled_from([0, 0, 1, 2, 5]),
        top_p=st.sampled_from([1.0, 1.0, 0.3, 0.7, 0.95]),
    )
    schedule = Schedule(draw(some))
    for place in sorted(draw(st.sets(st.integers(1, 12), max_size=4))):
        schedule.turn(place, draw(some))
    return schedule


def device_sampling(seed: int, schedule: Schedule, device: torch.device = CPU) -> DeviceSampling:
    sampling = DeviceSampling(device, 64)
    sampling.follow(seed, schedule, 0)
    return sampling


def some_logits(seed: int, rows: int, width: int) -> Tensor:
    """Logits with some ties."""
    numbers = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, width, generator=numbers) * 3).round(decimals=1)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 9), st.integers(1, 6), schedules())
def test_choices_are_those_of_the_host(seed: int, first: int, deepest: int, schedule: Schedule) -> None:
    """Each row's token is chosen with the settings and noise of its depth; padding rows are ignored."""
    depths = [row % (deepest + 1) for row in range(9)]
    logits = some_logits(seed % 1000, len(depths) + 1, 40)
    right = GumbelNoise(seed, schedule, 40, CPU).choices(logits[:-1], [first + depth for depth in depths])
    verifier = CoupledDeviceVerifier(truncates=schedule.truncates_from(first))
    positions, levels = torch.arange(first, first + deepest + 1), torch.tensor([depth + 1 for depth in depths] + [0])
    found = verifier.choose(logits, device_sampling(seed, schedule), positions, levels)
    assert found[:-1].tolist() == right


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 9), st.integers(1, 6), schedules())
def test_chances_are_those_of_the_host(seed: int, first: int, deepest: int, schedule: Schedule) -> None:
    noise = GumbelNoise(seed, schedule, 40, CPU)
    verifier = CoupledDeviceVerifier(truncates=schedule.truncates_from(first))
    chances = verifier.probabilities(device_sampling(seed, schedule), torch.arange(first, first + deepest), 40)
    for depth in range(deepest):
        logits = some_logits(seed % 1000 + depth, 5, 40)
        found, right = chances(logits, depth), noise.estimate([first + depth] * 5).scores(logits)
        torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("setting", [Sampling(0.7), Sampling(1.0, 5, 0.8)], ids=str)
def test_logits_of_other_dtypes_are_sampled_as_in_float32(dtype: torch.dtype, setting: Sampling) -> None:
    schedule, positions = Schedule(setting), torch.arange(3, 6)
    logits, levels = some_logits(1, 6, 40).to(dtype), torch.tensor([1, 2, 3, 1, 2, 3])
    verifier, sampling = device_verifier(schedule, 0), device_sampling(7, schedule)
    choices = verifier.choose(logits, sampling, positions, levels)
    assert torch.equal(choices, verifier.choose(logits.float(), sampling, positions, levels))
    chances = verifier.probabilities(sampling, positions, 40)
    assert chances is not None
    found = chances(logits, 1)
    assert found.dtype == torch.float32
    assert torch.equal(found, chances(logits.float(), 1))


def test_what_is_greedy_adds_nothing_to_logits() -> None:
    sampling, logits = device_sampling(3, Schedule(Sampling(0.0, top_k=2, top_p=0.1))), some_logits(1, 4, 40)
    for truncates in (False, True):
        chances = CoupledDeviceVerifier(truncates=truncates).probabilities(sampling, torch.arange(4), 40)
        assert torch.equal(chances(logits, 2), logits)


def test_settings_that_were_put_in_force_again_for_the_same_position_are_followed() -> None:
    schedule = Schedule(Sampling(0.5))
    sampling = device_sampling(1, schedule)
    for latest in (Sampling(1.0, top_k=1), Sampling(1.0)):
        before = schedule.turns
        schedule.turn(5, latest)
        assert schedule.turns == before + 1
        sampling.follow(1, schedule, 2)
    right = device_sampling(1, schedule)
    positions, logits = torch.arange(10), some_logits(1, 10, 40)
    assert torch.equal(sampling.noise(positions, 40), right.noise(positions, 40))
    excluded = sampling.truncation(positions, 40).excluded(logits)
    assert torch.equal(excluded, right.truncation(positions, 40).excluded(logits))
    assert not bool(excluded.any())


def test_what_is_followed_from_a_position_on_leaves_those_before_as_they_are() -> None:
    schedule = Schedule(Sampling(0.5))
    sampling = device_sampling(1, schedule)
    before = sampling.noise(torch.arange(20), 40)
    schedule.turn(8, Sampling(1.0))
    sampling.follow(1, schedule, 4)
    after = sampling.noise(torch.arange(20), 40)
    assert torch.equal(after[:8], before[:8])
    torch.testing.assert_close(after[8:], before[8:] * 2)


def test_of_equally_probable_tokens_the_first_are_kept_by_the_settings_of_each_position() -> None:
    schedule = Schedule(Sampling(1.0, top_p=0.5))
    for place, latest in enumerate((Sampling(1.0, top_k=3), Sampling(0.5, top_k=4, top_p=0.25), Sampling(1.0)), 1):
        schedule.turn(place, latest)
    excluded = device_sampling(0, schedule).truncation(torch.arange(4), 8).excluded(torch.zeros(4, 8))
    assert excluded.tolist() == [[token >= count for token in range(8)] for count in (4, 3, 1, 8)]


# Choice of the token on a GPU


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("seed", SEEDS)
def test_the_host_chooses_on_a_gpu_as_on_a_cpu(seed: int) -> None:
    schedule = Schedule(Sampling(0.6))
    schedule.turn(3, Sampling(1.0, top_p=0.9))
    schedule.turn(6, Sampling(1.0, top_k=4))
    schedule.turn(9, Sampling())
    logits, places = torch.randn(12, VOCABULARY, generator=torch.Generator().manual_seed(1)), range(12)
    on_cpu, on_gpu = (GumbelNoise(seed, schedule, VOCABULARY, torch.device(name)) for name in ("cpu", "cuda"))
    assert on_gpu.choices(logits.cuda(), places) == on_cpu.choices(logits, places)
    found, right = (
        noise.estimate(places).scores(rows).cpu() for noise, rows in ((on_gpu, logits.cuda()), (on_cpu, logits))
    )
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)

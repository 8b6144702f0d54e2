"""Tests of A/B comparisons: the compared rounds and the coverage of the intervals."""

import math
import time
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from numpy.typing import NDArray

from decoder.analysis.metrics import fold
from decoder.events import Event, Knob
from dynatui.state.ab_comparison import (
    LEAST,
    Difference,
    Pin,
    Samples,
    compared,
    difference_words,
    samples_of,
    sentence,
    signed,
)
from dynatui.state.lane import Sample
from dynatui.state.run_state import RunState, apply
from tests.dynatui.scripted_runs import plain_round, run, state_of, tree_round

WATCHED = "dynatree"


def _autocorrelated(generator: np.random.Generator, count: int, memory: float, mean: float) -> NDArray[np.float64]:
    series = np.empty(count)
    value = generator.normal()
    for index in range(count):
        value = memory * value + math.sqrt(1 - memory**2) * generator.normal()
        series[index] = value
    return series + mean


def _samples(shares: Iterable[float], tokens: Iterable[int] | None = None) -> Samples:
    shares = list(shares)
    counts = [3] * len(shares) if tokens is None else list(tokens)
    return tuple(Sample(count, 9, 3, share, 0.01) for share, count in zip(shares, counts, strict=True))


def _by_figure(a: Samples, b: Samples) -> dict[str, Difference]:
    found = compared(a, b)
    assert found is not None
    return {difference.figure: difference for difference in found}


@pytest.mark.parametrize(
    ("memory", "sizes", "least"),
    [
        (0.0, (10, 10), 0.93),
        (0.0, (60, 200), 0.93),
        (0.4, (15, 80), 0.87),
        (0.4, (60, 200), 0.91),
        (0.6, (200, 200), 0.91),
    ],
)
def test_95_percent_intervals_hold_the_true_difference_about_as_often(
    memory: float, sizes: tuple[int, int], least: float
) -> None:
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        a, b = (_autocorrelated(generator, size, memory, mean) for size, mean in zip(sizes, (0.5, 0.8), strict=True))
        found = _by_figure(_samples(a.tolist()), _samples(b.tolist()))["depth_acceptance"]
        held += found.low <= 0.3 <= found.high
    assert least <= held / 400 <= 0.99


@settings(deadline=None)
@given(*[st.lists(st.tuples(st.integers(1, 60), st.floats(1e-4, 10.0)), min_size=LEAST, max_size=20) for _ in range(2)])
def test_no_interval_of_a_rate_or_of_tokens_a_round_is_below_minus_100_percent(
    a: list[tuple[int, float]], b: list[tuple[int, float]]
) -> None:
    found = _by_figure(*(tuple(Sample(count, 9, 3, 0.5, time) for count, time in side) for side in (a, b)))
    for figure in ("tokens_per_second", "tokens_per_round"):
        assert -found[figure].a <= found[figure].low <= found[figure].high < math.inf
        assert found[figure].low <= found[figure].difference * (1 + 1e-9) + 1e-9
        assert found[figure].difference <= found[figure].high * (1 + 1e-9) + 1e-9


def test_95_percent_intervals_of_rates_hold_the_true_ratio_about_as_often() -> None:
    generator, held = np.random.default_rng(5), 0
    for _ in range(400):
        sides = [
            tuple(Sample(3, 9, 3, 0.5, time) for time in generator.gamma(4.0, scale / 4, 30)) for scale in (0.02, 0.03)
        ]
        found = _by_figure(*sides)["tokens_per_second"]
        held += found.low <= (2 / 3 - 1) * found.a <= found.high
    assert 0.91 <= held / 400 <= 0.99


def test_neighbours_that_resemble_each_other_widen_the_interval() -> None:
    generator = np.random.default_rng(2)
    widths = []
    for memory in (0.0, 0.8):
        a, b = (_samples(_autocorrelated(generator, 300, memory, 0.0).tolist()) for _ in range(2))
        found = _by_figure(a, b)["depth_acceptance"]
        widths.append(found.high - found.low)
    assert widths[1] > 1.8 * widths[0]


def test_a_side_compared_with_itself_differs_by_nothing() -> None:
    generator = np.random.default_rng(3)
    same = _samples(generator.uniform(size=40).tolist(), generator.integers(1, 7, 40).tolist())
    for found in _by_figure(same, same).values():
        assert found.difference == 0
        assert found.low < 0 < found.high
        proportional = (1 + found.low / found.a) * (1 + found.high / found.a) == pytest.approx(1)
        assert proportional or found.low == pytest.approx(-found.high)
        assert difference_words(found) == "no clear difference"


def test_sides_without_spread_differ_by_exactly_their_distance() -> None:
    found = _by_figure(_samples([0.5] * 10), _samples([0.75] * 30))["depth_acceptance"]
    assert (found.difference, found.low, found.high) == (0.25, 0.25, 0.25)
    assert difference_words(found) == "B is higher"


def test_a_large_difference_is_clear_either_way() -> None:
    generator = np.random.default_rng(4)
    low, high = (_samples([0.5] * 60, generator.integers(*ends, 60).tolist()) for ends in ((1, 4), (3, 7)))
    assert difference_words(_by_figure(low, high)["tokens_per_round"]) == "B is higher"
    assert difference_words(_by_figure(high, low)["tokens_per_round"]) == "A is higher"


def test_a_rate_is_a_ratio_of_sums() -> None:
    fast = tuple(Sample(4, 9, 3, 0.5, 0.01 if i % 2 else 0.03) for i in range(20))
    slow = tuple(Sample(4, 9, 3, 0.5, 0.04) for _ in range(10))
    found = _by_figure(slow, fast)["tokens_per_second"]
    assert found.a == pytest.approx(100)
    assert found.b == pytest.approx(200)


def test_without_time_there_is_no_rate_to_compare() -> None:
    timeless = tuple(Sample(4, 9, 3, 0.5, 0.0) for _ in range(12))
    assert "tokens_per_second" not in _by_figure(timeless, _samples([0.5] * 12))


@pytest.mark.parametrize("sizes", [(LEAST - 1, 50), (50, LEAST - 1), (0, 0)])
def test_few_rounds_are_not_compared(sizes: tuple[int, int]) -> None:
    a, b = (_samples([0.5] * size) for size in sizes)
    assert compared(a, b) is None


def _decoded(state: RunState, count: int, tau_h: float = 0.9) -> RunState:
    for number in range(state.rounds, state.rounds + count):
        state = apply(state, tree_round(number, tau_h=tau_h))
    return state


def _turned(state: RunState) -> RunState:
    return apply(state, Knob(method="dynatree", round=state.rounds, name="tau_h", old=0.9, new=0.8, source="user"))


def test_a_begins_with_the_users_last_turn_and_b_after_the_pin() -> None:
    state = _decoded(_turned(_decoded(apply(RunState(), run()), 7)), 12)
    pin = Pin.of(state, WATCHED)
    assert len(pin.samples) == 12
    assert (pin.rounds, pin.curves, pin.knobs) == (19, state.lane.curves, state.lane.knobs)
    assert pin.since(state) == ()
    state = _decoded(state, 4)
    assert len(pin.since(state)) == 4


def test_b_begins_anew_with_every_turn_of_the_user() -> None:
    pin = Pin.of(state := _decoded(apply(RunState(), run()), 12), WATCHED)
    state = _decoded(_turned(_decoded(state, 5)), 3)
    assert len(pin.since(state)) == 3


def test_a_turn_pins_what_was_in_force_until_then() -> None:
    before = _decoded(apply(RunState(), run()), 12)
    pin = Pin.of(before, WATCHED)
    after = _decoded(_turned(before), 11)
    assert (len(pin.samples), len(pin.since(after))) == (12, 11)
    again = pin.after_turn(after)
    assert len(again.samples) == 11


def test_a_turn_after_few_rounds_keeps_the_a_that_can_be_compared() -> None:
    before = _decoded(apply(RunState(), run()), 12)
    pin = Pin.of(before, WATCHED)
    after = _decoded(_turned(before), LEAST - 1)
    assert pin.after_turn(after) is pin


def test_an_a_of_few_rounds_gives_way_to_one_of_as_many() -> None:
    before = _decoded(apply(RunState(), run()), 3)
    pin = Pin.of(before, WATCHED)
    assert len(pin.after_turn(_decoded(_turned(before), 5)).samples) == 5


def test_what_was_pinned_by_hand_stays_whatever_is_turned() -> None:
    before = _decoded(apply(RunState(), run()), 12)
    pin = Pin.of(before, WATCHED, by_hand=True)
    assert pin.after_turn(_decoded(_turned(before), 30)) is pin


def test_in_another_run_all_rounds_are_bs() -> None:
    pin = Pin.of(_decoded(apply(RunState(), run()), 12), WATCHED)
    other = structs.replace(run(), started_at="2026-01-02T00:00:00Z")
    assert len(pin.since(_decoded(apply(RunState(), other), 5))) == 5


def test_a_look_back_at_a_round_before_the_pin_has_no_b() -> None:
    earlier = _decoded(apply(RunState(), run()), 12)
    pin = Pin.of(_decoded(earlier, 12), WATCHED)
    assert pin.since(earlier) == ()


def test_samples_add_up_to_the_figures_of_the_run() -> None:
    events: list[Event] = [run(), *(tree_round(number) for number in range(12))]
    state = RunState()
    for event in events:
        state = apply(state, event)
    samples, figures = samples_of(state.lane), fold(events).figures()["dynatree"]
    assert sum(sample.tokens for sample in samples) / 12 == pytest.approx(figures.tokens_per_round)
    assert sum(sample.depth_acceptance for sample in samples) / 12 == pytest.approx(figures.depth_acceptance)
    assert sum(sample.drafted for sample in samples) == figures.drafted
    rate = sum(sample.timed_tokens for sample in samples) / math.fsum(sample.round_s for sample in samples)
    assert rate == pytest.approx(figures.tokens_per_second)


def test_a_round_without_time_and_one_that_goes_back_in_time_pay_for_nothing() -> None:
    rounds = [plain_round("dynatree", number) for number in range(3)]
    stalled = [rounds[0], structs.replace(rounds[1], t=rounds[0].t), structs.replace(rounds[2], t=0.0)]
    state = apply(RunState(), run())
    for event in stalled:
        state = apply(state, event)
    assert [(sample.round_s > 0, sample.timed_tokens) for sample in samples_of(state.lane)] == [
        (True, 1), (False, 0), (False, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        (0.314, 2, "+0.31"),
        (-1.2, 2, "-1.20"),
        (0.0001, 2, "0"),
        (-0.004, 2, "0"),
        (12.34, 1, "+12.3"),
        (-0.06, 1, "-0.1"),
    ],
)
def test_differences_are_written_with_their_sign(value: float, digits: int, written: str) -> None:
    assert signed(value, digits) == written


def test_a_difference_is_one_line() -> None:
    found = Difference("tokens_per_round", 3.0, 3.31, 0.05, 0.57)
    assert sentence(found) == "L-bar: B - A +0.31 (+0.05 to +0.57)"
    assert (
        sentence(Difference("tokens_per_second", 200.0, 180.0, -41.3, 1.0)) == "tokens/s: B - A -20.0 (-41.3 to +1.0)"
    )


def test_comparing_takes_little_time() -> None:
    lane = _decoded(apply(RunState(), run()), 800).lane
    spent_s = []
    for _ in range(5):
        start_s = time.process_time()
        samples = samples_of(lane)
        assert compared(samples, samples)
        spent_s.append(time.process_time() - start_s)
    assert len(samples) == 500
    assert min(spent_s) < 0.02  # about 0.001 on the author's machine


def test_the_same_rounds_are_no_clear_difference_however_they_are_summed() -> None:
    lane = _decoded(apply(RunState(), run()), 60).lane
    samples = samples_of(lane)
    for cut in range(10, 50):
        found = compared(samples[:cut], samples[cut:])
        assert found
        assert not [one.figure for one in found if one.clear]


def test_what_a_turn_pinned_follows_a_place_before_it_and_what_a_hand_pinned_does_not() -> None:
    events: list[Event] = [run(), *(tree_round(number) for number in range(6))]
    whole, earlier = state_of(events), state_of(events[:4])
    later: Event = structs.replace(run(), started_at="later")
    other = state_of([later, *events[1:4]])
    pin = Pin.of(whole, "dynatree")
    assert [pin.follows(state) for state in (earlier, whole, other)] == [True, False, False]
    assert not Pin.of(whole, "dynatree", by_hand=True).follows(earlier)

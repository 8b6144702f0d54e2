"""The effect of a turned knob: the compared rounds and the coverage of the intervals."""

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import Event
from decoder.knobs import KnobName
from dynatui.state.lane import Sample
from dynatui.state.run_state import RunState
from dynatui.state.turn_effect import ROUNDS, Consequence, Difference, Samples, compared, consequence, signed
from tests.dynatui.scripted_runs import plain_round, run, state_of, tree_round
from tests.dynatui.turned_runs import rounds, turned


def _samples(tokens: Iterable[int], round_s: float = 0.01) -> Samples:
    return tuple(Sample(count, 9, 3, 0.5, round_s) for count in tokens)


def _by_figure(a: Samples, b: Samples) -> dict[str, Difference]:
    return {difference.figure: difference for difference in compared(a, b)}


def test_95_percent_intervals_hold_the_true_difference_about_as_often() -> None:
    generator, held = np.random.default_rng(5), Counter[str]()

    def side(chance: float, mean_s: float) -> Samples:
        tokens, times = 1 + generator.binomial(6, chance, 30), generator.gamma(4.0, mean_s / 4, 30)
        return tuple(Sample(int(count), 9, 3, 0.5, float(time)) for count, time in zip(tokens, times, strict=True))

    for _ in range(400):
        found = _by_figure(side(0.4, 0.02), side(0.6, 0.03))
        rate = found["tokens_per_second"]
        true = {"tokens_per_round": 1.2, "tokens_per_second": ((4.6 / 0.03) / (3.4 / 0.02) - 1) * rate.a}
        held.update(figure for figure, each in found.items() if each.low <= true[figure] <= each.high)
    assert all(0.91 <= count / 400 <= 0.99 for count in held.values())
    assert len(held) == 2


@settings(deadline=None)
@given(
    *[st.lists(st.tuples(st.integers(1, 60), st.floats(1e-4, 10.0)), min_size=ROUNDS, max_size=20) for _ in range(2)]
)
def test_no_interval_of_a_rate_or_of_tokens_a_round_is_below_minus_100_percent(
    a: list[tuple[int, float]], b: list[tuple[int, float]]
) -> None:
    found = _by_figure(*(tuple(Sample(count, 9, 3, 0.5, time) for count, time in side) for side in (a, b)))
    for figure in ("tokens_per_second", "tokens_per_round"):
        assert -found[figure].a <= found[figure].low <= found[figure].high < math.inf
        assert found[figure].low <= found[figure].difference * (1 + 1e-9) + 1e-9
        assert found[figure].difference <= found[figure].high * (1 + 1e-9) + 1e-9


def test_a_side_compared_with_itself_differs_by_nothing() -> None:
    same = _samples(np.random.default_rng(3).integers(1, 7, 40).tolist())
    for found in _by_figure(same, same).values():
        assert found.difference == 0
        assert (1 + found.low / found.a) * (1 + found.high / found.a) == pytest.approx(1)
        assert not found.clear


def test_sides_without_spread_differ_by_exactly_their_distance() -> None:
    found = _by_figure(_samples([2] * 10), _samples([3] * 30))["tokens_per_round"]
    assert (found.difference, found.low, found.high) == pytest.approx((1, 1, 1))
    assert found.clear


def test_a_rate_is_a_ratio_of_sums() -> None:
    fast = tuple(Sample(4, 9, 3, 0.5, 0.01 if i % 2 else 0.03) for i in range(20))
    found = _by_figure(_samples([4] * 10, 0.04), fast)["tokens_per_second"]
    assert found.a == pytest.approx(100)
    assert found.b == pytest.approx(200)


def test_without_time_there_is_no_rate_to_compare() -> None:
    assert "tokens_per_second" not in _by_figure(_samples([4] * 12, 0.0), _samples([4] * 12))


@pytest.mark.parametrize("sizes", [(ROUNDS - 1, 50), (50, ROUNDS - 1), (0, 0)])
def test_few_rounds_are_not_compared(sizes: tuple[int, int]) -> None:
    a, b = (_samples([3] * size) for size in sizes)
    assert compared(a, b) == ()


def test_samples_add_up_to_the_figures_of_the_run() -> None:
    events: list[Event] = [run(), *(tree_round(number) for number in range(12))]
    samples, figures = state_of(events).lane.samples, fold(events).figures()["dynatree"]
    assert sum(sample.tokens for sample in samples) / 12 == pytest.approx(figures.tokens_per_round)
    assert sum(sample.depth_acceptance for sample in samples) / 12 == pytest.approx(figures.depth_acceptance)
    assert sum(sample.drafted for sample in samples) == figures.drafted
    rate = sum(sample.timed_tokens for sample in samples) / math.fsum(sample.round_s for sample in samples)
    assert rate == pytest.approx(figures.tokens_per_second)


def test_a_round_without_time_and_one_that_goes_back_in_time_pay_for_nothing() -> None:
    rounds = [plain_round("dynatree", number) for number in range(3)]
    stalled = [rounds[0], structs.replace(rounds[1], t=rounds[0].t), structs.replace(rounds[2], t=0.0)]
    found = [(sample.round_s > 0, sample.timed_tokens) for sample in state_of([run(), *stalled]).lane.samples]
    assert found == [(True, 1), (False, 0), (False, 0)]


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


def test_the_same_rounds_are_no_clear_difference_however_they_are_summed() -> None:
    samples = tuple(state_of([run(), *map(tree_round, range(60))]).lane.samples)
    for cut in range(10, 50):
        found = compared(samples[:cut], samples[cut:])
        assert found
        assert not [one.figure for one in found if one.clear]


def state(*parts: Event | Iterable[Event]) -> RunState:
    events: list[Event] = [run()]
    for part in parts:
        events += part if isinstance(part, Iterable) else [part]
    return state_of(events)


def found(*parts: Event | Iterable[Event]) -> Consequence:
    told = consequence(state(*parts).lane)
    assert told is not None
    return told


def test_a_turn_is_told_of_by_ten_rounds_before_it_and_ten_after() -> None:
    told = found(rounds(range(14)), turned("d0", 14, 2, 5), rounds(range(14, 40), nodes=10))
    assert [(mark.name, mark.old, mark.new) for mark in told.marks] == [("d0", 2, 5)]
    assert (len(told.before), len(told.after), told.complete) == (ROUNDS, ROUNDS, True)
    assert told.nodes == (7, 10)
    assert [event.round for event in told.rounds] == list(range(14, 24))


@pytest.mark.parametrize("name", ["d0", "tau_h", "tau_l"])
def test_it_has_intervals_when_both_sides_have_ten_rounds(name: KnobName) -> None:
    past: list[Event] = [*rounds(range(12)), turned(name, 12, 0.9, 0.3)]
    assert found(past, rounds(range(12, 21), more=1)).differences == ()
    assert found(rounds(range(9)), turned(name, 9, 0.9, 0.3), rounds(range(9, 30), more=1)).differences == ()
    told = {one.figure: one for one in found(past, rounds(range(12, 22), more=1)).differences}
    longer = told["tokens_per_round"]
    assert longer.difference == pytest.approx(1.0)
    assert longer.low < 1 < longer.high
    assert told["tokens_per_second"].low < told["tokens_per_second"].difference < told["tokens_per_second"].high


def test_a_held_key_is_one_turn_from_its_first_value_to_its_last() -> None:
    events: list[Event] = [*rounds(range(12))]
    for place in range(5):
        events += [turned("d0", 12 + 2 * place, 2 + place, 3 + place), *rounds(range(12 + 2 * place, 14 + 2 * place))]
    told = found(events, rounds(range(22, 35), nodes=9))
    assert [(mark.old, mark.new) for mark in told.marks] == [(2, 7)]
    assert [event.round for event in told.rounds] == list(range(20, 30))
    assert len(told.before) == ROUNDS
    assert told.nodes == pytest.approx((7, 8.6))


def test_history_itself_is_no_knob_with_a_consequence() -> None:
    off = turned("history", 12, 1, 0)
    assert consequence(state(rounds(range(12)), off, rounds(range(12, 22))).lane) is None
    held = found(rounds(range(12)), off, turned("d0", 12, 3.8, 5), rounds(range(12, 22)))
    assert [mark.name for mark in held.marks] == ["d0"]


def test_a_turn_there_and_back_has_no_consequence() -> None:
    events: list[Event] = [*rounds(range(12)), turned("d0", 12, 2, 5), *rounds(range(12, 14)), turned("d0", 14, 5, 2)]
    assert consequence(state(events).lane) is None
    beside = [turned("tau_l", 12, 0.4, 0.3), turned("tau_h", 12, 0.9, 0.8)]
    assert [mark.name for mark in found(rounds(range(12)), beside, events[12:]).marks] == ["tau_l", "tau_h"]
    assert consequence(state(rounds(range(12))).lane) is None
    assert consequence(state(turned("d0", 0, 2, 5), rounds(range(12))).lane) is None


@pytest.mark.parametrize(("gap", "names"), [(9, ["tau_h", "d0"]), (10, ["d0"])])
def test_a_turn_after_fewer_than_ten_rounds_continues_the_one_before(gap: int, names: list[str]) -> None:
    turns = [turned("tau_h", 12, 0.9, 0.8), turned("d0", 12 + gap, 2, 5)]
    told = found(rounds(range(12)), turns[0], rounds(range(12, 12 + gap)), turns[1], rounds(range(12 + gap, 40)))
    assert [mark.name for mark in told.marks] == names


def test_a_move_of_history_is_no_turn() -> None:
    moved = turned("d0", 16, 5, 4, source="history")
    told = found(rounds(range(12)), turned("d0", 12, 2, 5), rounds(range(12, 16)), moved, rounds(range(16, 24)))
    assert [(mark.old, mark.new) for mark in told.marks] == [(2, 5)]


def test_a_stalled_round_is_no_slowdown() -> None:
    after = rounds(range(12, 22))
    late = [structs.replace(event, t=event.t + 0.5) for event in after[5:]]
    late[0] = structs.replace(late[0], stalled_s=0.5)
    told = found(rounds(range(12)), turned("d0", 12, 2, 5), after[:5], late)
    speed = next(one for one in told.differences if one.figure == "tokens_per_second")
    assert speed.b == pytest.approx(speed.a, rel=0.2)


def test_every_place_of_a_run_has_its_own() -> None:
    events: list[Event] = [
        *rounds(range(12)),
        turned("d0", 12, 2, 5),
        *rounds(range(12, 24), nodes=10),
        turned("d0", 24, 5, 2),
        *rounds(range(24, 36)),
    ]
    seen = [consequence(state(events[:end]).lane) for end in (12, 25, 26, 38)]
    assert [told and told.nodes for told in seen] == [None, (7, 10), None, (10, 7)]

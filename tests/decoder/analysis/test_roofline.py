"""Expected times of passes, steps and rounds, against cases computed by hand."""

import random
from collections.abc import Iterator

import pytest
from msgspec import structs

from decoder.analysis.roofline import (
    SIZES,
    DeviceSpeed,
    PassWork,
    break_even,
    expected_times,
    round_s,
    step_s,
    verify_s,
)
from decoder.analysis.round_costs import LEAST_ROUNDS, fitted
from decoder.events import Expected, Round
from tests.dynatui.scripted_runs import tree_round

H200 = DeviceSpeed(4.8e12)
PYTHIA = PassWork(weights_bytes=2 * 2_770_000_000, weights=2_770_000_000)
"""Pythia 2.8B in float16."""
SMALL = PassWork(weights_bytes=2 * 70_000_000, weights=70_000_000)


def test_a_step_takes_as_long_as_its_weights_are_read() -> None:
    # 5.54 GB at 4.8 TB/s.
    assert step_s(expected_times(PYTHIA, H200)) == pytest.approx(1.154e-3, rel=1e-3)


def test_keys_and_values_of_the_text_are_read_too() -> None:
    # Pythia 2.8B has 32 layers of 2 x 2560 numbers of 2 bytes per token: 0.66 GB for 2,000 tokens.
    work = PassWork(PYTHIA.weights_bytes, PYTHIA.weights, cached_bytes=lambda text: 32 * 2 * 2560 * 2 * text)
    assert step_s(expected_times(work, H200, text=2000)) == pytest.approx((5.54e9 + 0.65536e9) / 4.8e12)
    assert step_s(expected_times(work, H200)) == step_s(expected_times(PYTHIA, H200))


def test_a_round_is_a_draft_pass_for_each_level_and_one_pass_of_the_target() -> None:
    expected = expected_times(PYTHIA, H200, SMALL)
    assert expected.draft_pass_s == pytest.approx(0.14e9 / 4.8e12)
    assert round_s(expected, 8, 64) == pytest.approx((5.54e9 + 8 * 0.14e9) / 4.8e12)
    assert break_even(expected, 8, 64) == pytest.approx(1 + 8 * 0.14 / 5.54)


def test_without_a_draft_model_rounds_cost_one_pass_and_pay_from_one_token_on() -> None:
    expected = expected_times(PYTHIA, H200)
    assert round_s(expected, 8, 64) == step_s(expected)
    assert break_even(expected, 8, 64) == 1


def test_arithmetic_decides_where_rows_need_longer_than_the_reading() -> None:
    # One row needs 2 x 100 / 1000 = 0.2 s, the reading 1 s: up to 5 rows take the time of one.
    expected = expected_times(PassWork(400, 100), DeviceSpeed(400.0, 1000.0))
    assert [verify_s(expected, rows) for rows in (1, 5, 10)] == pytest.approx([1.0, 1.0, 2.0])
    slow = expected_times(PassWork(400, 100), DeviceSpeed(4e6, 1000.0), PassWork(400, 10), DeviceSpeed(4e6, 1000.0))
    assert step_s(slow) == pytest.approx(0.2)
    assert slow.draft_pass_s == pytest.approx(0.02)


def test_the_draft_is_read_at_its_own_speed() -> None:
    expected = expected_times(PYTHIA, H200, SMALL, DeviceSpeed(1.4e9))
    assert expected.draft_pass_s == pytest.approx(0.1)
    assert expected.target_read_s == pytest.approx(5.54e9 / 4.8e12)


def test_larger_rounds_never_take_less_and_never_pay_earlier() -> None:
    expected = Expected(target_read_s=0.01, target_row_s=0.001, draft_pass_s=0.002)
    times = [round_s(expected, levels, rows) for levels, rows in SIZES]
    points = [break_even(expected, levels, rows) for levels, rows in SIZES]
    assert times == sorted(times)
    assert points == sorted(points)
    assert times == pytest.approx([0.012, 0.024, 0.08])


# Estimated times of rounds, compared with the costs by which the rounds were made


LEVEL_S, ROW_S, ROW_0_S, REST_S = 0.002, 0.0005, 0.01, 0.001


def rounds(count: int, *, seed: int = 1, alike: bool = False, stalled: int = -1) -> Iterator[Round]:
    """Rounds with chains and stars of random sizes, whose times follow from their sizes."""
    generator, t = random.Random(seed), 0.0
    for number in range(count):
        depth, width = (3, 2) if alike else (generator.randint(1, 5), generator.randint(1, 6))
        parents = [-1, *range(depth), *[0] * (width - 1)]
        nodes = len(parents) - 1
        draft_s, verify_s = LEVEL_S * depth, ROW_0_S + ROW_S * nodes + (1.0 if number == stalled else 0.0)
        t += draft_s + verify_s + REST_S
        yield structs.replace(
            tree_round(number),
            t=t,
            draft_s=draft_s,
            verify_s=verify_s,
            parents=parents,
            tokens=list(range(nodes + 1)),
            logprobs=[0.0] * (nodes + 1),
            pieces=[""] * (nodes + 1),
            accepted=[],
        )


@pytest.mark.parametrize("plain_pass_s", [None, ROW_0_S])
def test_costs_are_those_by_which_the_rounds_were_made(plain_pass_s: float | None) -> None:
    costs = fitted(list(rounds(30)), plain_pass_s)
    assert costs is not None
    assert (costs.level_s, costs.row_s, costs.fixed_s) == pytest.approx((LEVEL_S, ROW_S, ROW_0_S + REST_S))
    assert costs.seconds(4, 10) == pytest.approx(4 * LEVEL_S + ROW_0_S + 10 * ROW_S + REST_S)


def test_a_stalled_round_changes_nothing_where_the_time_of_one_row_is_known() -> None:
    costs = fitted(list(rounds(30, stalled=12)), ROW_0_S)
    assert costs is not None
    assert (costs.level_s, costs.row_s, costs.fixed_s) == pytest.approx((LEVEL_S, ROW_S, ROW_0_S + REST_S))


def test_trees_of_one_size_do_not_tell_what_a_row_costs_without_a_pass_of_one_row() -> None:
    alike = list(rounds(30, alike=True))
    assert fitted(alike, None) is None
    costs = fitted(alike, ROW_0_S)
    assert costs is not None
    assert costs.row_s == pytest.approx(ROW_S)


def test_few_rounds_and_rounds_without_times_have_no_costs() -> None:
    assert fitted(list(rounds(LEAST_ROUNDS)), ROW_0_S) is None
    assert fitted([structs.replace(event, verify_s=None) for event in rounds(30)], ROW_0_S) is None

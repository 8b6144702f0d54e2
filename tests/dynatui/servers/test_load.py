"""The model of batches: what a roofline says of it, what points of a server say, and what others have published."""

from itertools import product
from typing import TypeAlias

import pytest

from decoder.analysis.roofline import DeviceSpeed
from decoder.errors import ConfigError
from dynatui.servers.costs import PLAIN, LoadCosts, PassCost, chain, fitted, measured, roofline, scaled
from dynatui.servers.profile_file import ModelSize, StepPoint
from tests.dynatui.servers.profiles import TARGET

SPEED = DeviceSpeed(2e12, 4e14)
MS = 1e-3


def point(running: float, k: float, ms: float) -> StepPoint:
    return StepPoint(running=running, k=k, step_s=ms * MS, steps=100)


def test_a_roofline_reads_weights_once_and_each_streams_text_apart() -> None:
    cost = roofline(TARGET, SPEED)
    assert cost is not None
    one, four = cost.seconds(1, 1, 1000), cost.seconds(4, 1, 1000)
    text_s = 1000 * 131072 / 2e12
    assert one == pytest.approx(16e9 / 2e12 + text_s)
    assert four - one == pytest.approx(3 * text_s)


def test_products_turn_from_memory_to_arithmetic_with_the_rows_of_all_streams() -> None:
    cost = roofline(TARGET, SPEED)
    assert cost is not None
    knee = 16e9 / 2e12 / (2 * 8e9 / 4e14)
    assert cost.seconds(1, knee) == pytest.approx(cost.seconds(1, 1))
    assert cost.seconds(4, knee) == pytest.approx(4 * cost.seconds(1, knee))
    assert cost.seconds(8, knee) == pytest.approx(cost.seconds(4, 2 * knee))


def test_without_a_rate_of_arithmetic_rows_cost_nothing_and_without_a_size_nothing_is_known() -> None:
    cost = roofline(TARGET, DeviceSpeed(2e12))
    assert cost is not None
    assert cost.seconds(64, 17) == cost.seconds(1, 1)
    assert roofline(ModelSize(name="unknown"), SPEED) is None


def test_measured_passes_are_interpolated_and_go_on_as_they_ended() -> None:
    cost = measured({1: 10 * MS, 4: 13 * MS, 16: 37 * MS}, fixed_s=2 * MS)
    assert cost.seconds(1, 2) == pytest.approx(13 * MS)
    assert cost.seconds(2, 5) == pytest.approx((2 + 13 + 6 * 2) * MS)
    assert cost.seconds(8, 4) == pytest.approx((2 + 37 + 16 * 2) * MS)
    assert measured({1: 10 * MS}).seconds(64, 1) == pytest.approx(10 * MS)


def test_a_smaller_models_passes_grow_as_the_targets_do() -> None:
    cost = measured({1: 10 * MS, 16: 40 * MS})
    smaller = scaled(cost, 2 * MS)
    assert smaller.seconds(1, 1) == pytest.approx(2 * MS)
    assert smaller.seconds(32, 1) == pytest.approx(cost.seconds(32, 1) / 5)


def test_a_round_pays_from_the_tokens_that_plain_steps_would_take() -> None:
    costs = LoadCosts(PassCost(10 * MS), PassCost(1 * MS), token_s=0.5 * MS, drafting_s=3 * MS)
    assert costs.round_s(1, PLAIN) == pytest.approx(10 * MS)
    assert costs.round_s(1, chain(4)) == pytest.approx((10 + 4 + 2 + 3) * MS)
    assert costs.speedups(1.9, chain(4), [1]) == pytest.approx([1])


@pytest.mark.parametrize(
    ("cells", "term_ms", "predicted"),
    [
        (((4, 0), (4, 5)), (20, 0, 3, 0, 0), (4, 2)),
        (((1, 0), (1, 1), (1, 3)), (37.7, 0, 26, 0, 35), (1, 2)),
        (tuple(product((1, 4, 16, 40), (0, 3, 6))), (8, 0.3, 0.9, 0.05, 0), (64, 4)),
    ],
    ids=["two points", "three points, of vLLM's issue 47277", "points at several loads"],
)
def test_points_give_the_costs_that_they_tell_apart(
    cells: tuple[tuple[int, int], ...], term_ms: tuple[float, ...], predicted: tuple[int, int]
) -> None:
    def step_ms(running: int, k: int) -> float:
        return sum(term * each for term, each in zip(term_ms, (1, running, k, running * k, k > 0), strict=True))

    fit = fitted([point(running, k, step_ms(running, k)) for running, k in cells])
    running, k = predicted
    assert fit.costs.round_s(running, chain(k)) == pytest.approx(step_ms(running, k) * MS)
    assert fit.costs.round_s(running, PLAIN) == pytest.approx(step_ms(running, 0) * MS)
    assert fit.costs.drafting_s == pytest.approx(term_ms[-1] * MS)
    assert fit.error < 1e-6
    assert (fit.streams, fit.drafted) == ((cells[0][0], cells[-1][0]), tuple(sorted({k for _, k in cells})))


def test_outliers_at_a_load_do_not_move_the_fit() -> None:
    points = [point(4, 0, 20), point(4, 0, 20.2), point(4.1, 0, 900), point(4, 5, 35), point(4, 5, 35), point(4, 5, 1)]
    fit = fitted(points)
    assert fit.costs.round_s(4, PLAIN) == pytest.approx(20.2 * MS, rel=0.02)
    assert fit.costs.round_s(4, chain(5)) == pytest.approx(35 * MS, rel=0.02)


def test_no_cost_of_a_fit_is_negative() -> None:
    fit = fitted([point(1, 0, 20), point(1, 3, 15), point(8, 0, 18), point(8, 3, 14)])
    costs = fit.costs
    assert min(costs.token_s, costs.drafting_s, costs.target.fixed_s, costs.target.row_s) >= 0
    assert fit.error > 0.1


@pytest.mark.parametrize(
    ("points", "seen"),
    [([], "no step times"), ([point(1, 3, 20), point(8, 3, 30)], "3 drafted tokens"), ([point(0, 3, 20)], "no step")],
)
def test_one_number_of_drafted_tokens_cannot_be_fitted(points: list[StepPoint], seen: str) -> None:
    with pytest.raises(ConfigError, match=seen):
        fitted(points)


Measured: TypeAlias = dict[tuple[int, int], float]
"""(drafted tokens, running requests) -> tokens a second, divided by tokens a round."""
TREES: Measured = {
    (3, 1): 114.27 / 2.05,
    (3, 8): 847.38 / 2.06,
    (3, 16): 1567.5 / 2.05,
    (8, 1): 128.63 / 2.37,
    (8, 8): 902.72 / 2.37,
    (8, 16): 1640.95 / 2.38,
}
"""vLLM's pull request 22752, mt-bench: a chain and a tree. The number of the tree's tokens is not published; any number
that is larger than the chain's gives the same fit.
"""
MEDUSA: Measured = {
    (k, 2**place): rate / length
    for k, length, rates in (
        (0, 1.0, (128.73, 245.14, 453.78, 792.05, 1262.11, 1862.19, 2425.03)),
        (4, 1.6, (155.06, 293.14, 550.85, 911.77, 1318.1, 1681.17, 1769.62)),
    )
    for place, rate in enumerate(rates)
}
"""vLLM's pull request 4978: Mistral 7B on an H100 without and with drafts. L is not published: it is 1.6 here."""
EAGLE: Measured = {
    (k, load): rate / length
    for k, length, rates in (
        (3, 2.61, (336, 536, 803, 1180)),
        (4, 2.81, (324, 516, 795, 1167)),
        (5, 2.93, (305, 488, 756, 1140)),
        (6, 3.00, (286, 459, 712, 1090)),
        (7, 3.05, (269, 431, 673, 1053)),
        (8, 3.04, (254, 411, 639, 1018)),
    )
    for load, rate in zip((1, 2, 4, 8), rates, strict=True)
}
"""vLLM's pull request 32628, HumanEval, EAGLE-3."""


@pytest.mark.parametrize(
    ("measured", "fitted_to"),
    [
        (TREES, [(3, 1), (3, 16), (8, 16)]),
        (MEDUSA, list(product((0, 4), (1, 16, 64)))),
        (EAGLE, list(product((3, 8), (1, 8)))),
    ],
    ids=["trees", "where a speed-up becomes a loss", "by drafted tokens"],
)
def test_published_times_of_steps_follow_from_some_of_them(
    measured: Measured, fitted_to: list[tuple[int, int]]
) -> None:
    step_ms = {cell: 1000 * cell[1] / rate for cell, rate in measured.items()}
    costs = fitted([point(running, k, step_ms[k, running]) for k, running in fitted_to]).costs
    for (k, running), ms in step_ms.items():
        predicted_s = costs.round_s(running, chain(k) if k else PLAIN)
        assert predicted_s == pytest.approx(ms * MS, rel=0.15)
        if (0, running) in step_ms and running in (8, 64):
            assert (costs.speedups(1.6, chain(4), [running])[0] > 1) == (running == 8)

"""The model of batches: what a roofline says of it, what points of a server say, and what others have published."""

from itertools import product

import pytest

from decoder.analysis.roofline import DeviceSpeed
from decoder.errors import ConfigError
from dynatui.servers.load import PLAIN, LoadCosts, PassCost, chain, fitted, measured, roofline, scaled
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
    assert costs.break_even(1, chain(4)) == pytest.approx(1.9)


def test_two_points_give_the_fixed_cost_and_the_cost_of_a_token() -> None:
    fit = fitted([point(4, 0, 20), point(4, 5, 35)])
    assert fit.costs.round_s(4, PLAIN) == pytest.approx(20 * MS)
    assert fit.costs.round_s(4, chain(2)) == pytest.approx(26 * MS)
    assert fit.costs.drafting_s == 0
    assert fit.error < 1e-6


def test_three_points_also_give_what_drafting_costs_at_all() -> None:
    """Step times of vLLM's issue 47277: 37.7 ms plain, and with drafts 35 ms and 26 ms a token more."""
    fit = fitted([point(1, k, 37.7 + (35 + 26 * k) * (k > 0)) for k in (0, 1, 3)])
    assert fit.costs.drafting_s == pytest.approx(35 * MS)
    assert fit.costs.token_s == pytest.approx(26 * MS)
    assert fit.costs.break_even(1, chain(1)) == pytest.approx(98.7 / 37.7)


def test_points_at_several_loads_give_the_cost_of_a_request_and_of_a_row() -> None:
    points = [point(b, k, 8 + 0.3 * b + 0.9 * k + 0.05 * b * k) for b, k in product((1, 4, 16, 40), (0, 3, 6))]
    fit = fitted(points)
    assert fit.costs.round_s(64, chain(4)) == pytest.approx((8 + 0.3 * 64 + 3.6 + 0.05 * 64 * 4) * MS)
    assert (fit.streams, fit.drafted) == ((1, 40), (0, 3, 6))


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


TREES = {
    ("chain", 1): (114.27, 2.05),
    ("chain", 8): (847.38, 2.06),
    ("chain", 16): (1567.5, 2.05),
    ("tree", 1): (128.63, 2.37),
    ("tree", 8): (902.72, 2.37),
    ("tree", 16): (1640.95, 2.38),
}
"""vLLM's pull request 22752, mt-bench: tokens a second and L of a chain and a tree, by running requests."""


def test_tokens_a_second_of_chains_and_trees_follow_from_three_published_points() -> None:
    """The number of the tree's tokens is not published; any that is larger than the chain's gives the same fit."""
    tokens = {"chain": 3, "tree": 8}
    points = {
        (shape, streams): point(streams, tokens[shape], 1000 * streams * length / rate)
        for (shape, streams), (rate, length) in TREES.items()
    }
    fit = fitted([points["chain", 1], points["chain", 16], points["tree", 16]])
    for (shape, streams), (rate, length) in TREES.items():
        expected = streams * length / fit.costs.round_s(streams, chain(tokens[shape]))
        assert expected == pytest.approx(rate, rel=0.15)


MEDUSA = {
    "plain": {1: 128.73, 2: 245.14, 4: 453.78, 8: 792.05, 16: 1262.11, 32: 1862.19, 64: 2425.03},
    "drafts": {1: 155.06, 2: 293.14, 4: 550.85, 8: 911.77, 16: 1318.1, 32: 1681.17, 64: 1769.62},
}
"""vLLM's pull request 4978: tokens a second of Mistral 7B on an H100 by concurrency, without and with drafts."""


def test_where_a_speed_up_becomes_a_loss_follows_from_three_published_loads() -> None:
    """L is not published: it is 1.6 here, and cancels from the speed-up."""
    length, seen = 1.6, (1, 16, 64)
    plain = [point(load, 0, 1000 * load / MEDUSA["plain"][load]) for load in seen]
    drafts = [point(load, 4, 1000 * load * length / MEDUSA["drafts"][load]) for load in seen]
    costs = fitted([*plain, *drafts]).costs
    for load, rate in MEDUSA["plain"].items():
        assert length / costs.break_even(load, chain(4)) == pytest.approx(MEDUSA["drafts"][load] / rate, rel=0.15)
    assert length / costs.break_even(64, chain(4)) < 1 < length / costs.break_even(8, chain(4))


LENGTHS = {3: 2.61, 4: 2.81, 5: 2.93, 6: 3.00, 7: 3.05, 8: 3.04}
RATES = {
    3: (336, 536, 803, 1180),
    4: (324, 516, 795, 1167),
    5: (305, 488, 756, 1140),
    6: (286, 459, 712, 1090),
    7: (269, 431, 673, 1053),
    8: (254, 411, 639, 1018),
}
"""vLLM's pull request 32628, HumanEval: L and tokens a second of EAGLE-3 by drafted tokens, at 1, 2, 4, 8 requests."""


def test_tokens_a_second_by_drafted_tokens_follow_from_four_published_points() -> None:
    loads = (1, 2, 4, 8)
    every = {
        (k, load): point(load, k, 1000 * load * LENGTHS[k] / rate)
        for k, rates in RATES.items()
        for load, rate in zip(loads, rates, strict=True)
    }
    costs = fitted([every[k, load] for k, load in product((3, 8), (1, 8))]).costs
    for (k, load), seen in every.items():
        assert costs.round_s(load, chain(k)) == pytest.approx(seen.step_s, rel=0.15)

"""Estimated times of rounds, compared with the costs by which the rounds were made."""

import random
from collections.abc import Iterator

import pytest
from msgspec import structs

from decoder.analysis.round_costs import LEAST_ROUNDS, fitted
from decoder.events import Round
from tests.dynatui.scripted_runs import tree_round

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

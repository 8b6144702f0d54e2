"""Survival rates of every chain length follow from one chain at every place of a text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dynatui.lab.tuning.survival import (
    CONTINUED,
    P_MINS,
    ByLength,
    Counts,
    Reals,
    ScoredPlaces,
    counted,
    grouped,
    stopped,
    trees,
)

LEVELS = 16


def places(accepted: Reals, **given: Any) -> ScoredPlaces:
    count, levels = accepted.shape
    usual: dict[str, Any] = {"drafted": np.full(count, levels), "known": count + LEVELS, "context": 0}
    return ScoredPlaces(accepted, **(usual | given))


def runs(lengths: Sequence[int]) -> Reals:
    """Chains whose first tokens are right, by place."""
    return (np.arange(LEVELS) < np.array(lengths)[:, None]).astype(float)


def walked(lengths: Sequence[int], k: int) -> tuple[int, list[int]]:
    """Rounds of a chain of k, and those with at least 1 to k accepted tokens, by a plain loop."""
    place, rounds, accepted = 1, 0, [0] * k
    while place < len(lengths):
        right = min(lengths[place], k)
        rounds += 1
        for level in range(right):
            accepted[level] += 1
        place += right + 1
    return rounds, accepted


def of(by_context: dict[str, ByLength]) -> ByLength:
    (only,) = by_context.values()
    return only


def test_the_rounds_of_each_chain_length_begin_where_its_round_before_ended() -> None:
    random = np.random.default_rng(3)
    lengths = random.integers(0, 20, size=200).tolist()
    found = of(counted(places(runs(lengths))).greedy)
    for k in range(1, LEVELS + 1):
        rounds, accepted = walked(lengths, k)
        assert (found[k - 1].rounds, list(found[k - 1].accepted)) == (rounds, accepted)


def test_copied_passages_make_the_first_rate_fall_with_the_chain_length() -> None:
    """Sixteen right tokens are one round of sixteen, but eight of one."""
    lengths = ([*range(16, -1, -1)] + [0] * 16) * 8
    acceptance = grouped([counted(places(runs(lengths))).greedy], [""], 0)
    assert acceptance is not None
    assert acceptance.at(1).survival[0] > 2 * acceptance.survival[0]
    rounds, accepted = walked(lengths, 3)
    assert acceptance.at(3).mean_length == pytest.approx(1 + sum(accepted) / rounds)


def test_random_acceptance_is_counted_by_its_expectation() -> None:
    random, texts = np.random.default_rng(5), 2000
    each = random.uniform(0.2, 1, size=30)
    accepted = np.array([[*each[place : place + 3], 1, 1, 1][:3] for place in range(30)])
    expected = of(counted(places(accepted, known=33)).greedy)[2]
    total, first = 0, 0
    for _ in range(texts):
        place = 1
        while place < 30:
            right = int((random.uniform(size=3) < accepted[place]).cumprod().sum())
            total, first, place = total + 1, first + (right > 0), place + right + 1
    assert expected.rounds == pytest.approx(total / texts, rel=0.01)
    assert expected.accepted[0] == pytest.approx(first / texts, rel=0.015)


def test_a_round_whose_chain_the_end_of_the_text_would_cut_does_not_count() -> None:
    accepted = runs([0] * 20)
    found = of(counted(places(accepted, known=20)).greedy)
    assert [each.rounds for each in found] == [20 - k for k in range(1, LEVELS + 1)]


def test_rounds_are_told_apart_by_the_tokens_before_them() -> None:
    found = counted(places(runs([0] * 30), context=1014)).greedy
    assert {name: lengths[0].rounds for name, lengths in found.items()} == {"<1k": 9, "<4k": 20}


def test_rounds_without_a_draft_count_for_lookup() -> None:
    scored = places(runs([0, 2, 0, 0, 0, 0]), drafted=np.array([0, 2, 0, 0, 2, 0]))
    (chain,) = [acceptance.at(2) for acceptance in [grouped([counted(scored).greedy], [""], 0)] if acceptance]
    assert (chain.rounds, chain.survival, chain.drafted) == (3, (1 / 3, 1 / 3), (2 / 3, 2 / 3))


def test_a_chain_stops_before_the_first_token_below_p_min() -> None:
    confidence = np.full((40, LEVELS), 0.9)
    confidence[:, 2] = 0.55
    scored = places(runs([16] * 40), confidence=confidence)
    found = {each.p_min: each for each in stopped([counted(scored).stopped])}
    assert tuple(found) == P_MINS
    assert (found[0.5].drafted, found[0.5].survival[-1]) == (16, 1)
    assert (found[0.6].drafted, found[0.6].survival[:3]) == (2, (1, 1, 0))
    assert (found[0.95].drafted, sum(found[0.95].survival), found[0.95].rounds) == (0, 0, 39)


def test_trees_pay_where_the_second_token_is_right_and_goes_on() -> None:
    accepted, ranks = runs([0] * 40), np.full((40, LEVELS), 9)
    accepted[:, 1:3] = 1
    ranks[::2, 0], ranks[1::2, 0] = 2, 5
    found = trees([counted(places(accepted, ranks=ranks)).trees])
    assert found is not None
    assert (found.mismatches, found.siblings) == (39, (19 / 39, 0, 0))
    assert found.continuation == (1, 1, 0, 0)
    assert len(found.continuation) == CONTINUED


def test_a_draft_that_is_always_right_has_no_mismatch_for_a_tree() -> None:
    assert trees([counted(places(runs([16] * 40), ranks=np.ones((40, LEVELS), np.int64))).trees]) is None


def constant(rounds: float, accepted: float) -> dict[str, ByLength]:
    return {"<1k": (Counts(rounds, (accepted,), (rounds,)),)}


def test_intervals_are_over_prompts_and_absent_for_one() -> None:
    alike = grouped([constant(10, 5), constant(20, 10)], ["", ""], 0)
    apart = grouped([constant(10, 1), constant(10, 9), constant(10, 5)], ["a", "b", "a"], 0)
    alone = grouped([constant(10, 5)], [""], 0)
    assert alike
    assert apart
    assert alone
    assert (alike.survival, alike.intervals, alike.length_interval) == ((0.5,), ((0.5, 0.5),), (1.5, 1.5))
    ((low, high),) = apart.intervals
    assert 0.1 <= low < 0.5 < high <= 0.9
    assert apart.length_interval == pytest.approx((1 + low, 1 + high))
    assert (alone.intervals, alone.length_interval) == ((), None)
    assert {name: group.survival for name, group in apart.by_category.items()} == {"a": (0.3,), "b": (0.9,)}


def test_a_share_is_that_of_rounds_not_a_mean_over_prompts() -> None:
    found = grouped([constant(90, 90), constant(10, 0)], ["", ""], 0)
    assert found
    assert (found.survival, found.mean_length) == ((0.9,), 1.9)


def test_texts_without_a_round_have_no_acceptance() -> None:
    assert grouped([counted(places(runs([0]), known=1)).greedy], [""], 0) is None

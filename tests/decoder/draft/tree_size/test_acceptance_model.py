"""Acceptance probabilities adapt to the target by a Newton step a choice, for over- and underconfident drafts."""

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from decoder.draft.suffix_automaton import FAMILIARITIES
from decoder.draft.tree_size.acceptance_model import (
    DECAY,
    FAMILIAR,
    PRIOR_COUNT,
    SHARPNESS,
    SURENESS,
    USUAL,
    AcceptanceModel,
)

LOGPROBS = st.lists(st.floats(-30, -1e-6) | st.just(-math.inf), min_size=1, max_size=5).map(
    lambda found: sorted(found, reverse=True)
)


def see(
    acceptance: AcceptanceModel, logprobs: Sequence[float], chosen: int | None, familiar: Sequence[int] = ()
) -> None:
    acceptance.learn(logprobs, acceptance.shares(logprobs, familiar), chosen, familiar)


def logs(probabilities: Sequence[float]) -> list[float]:
    return [math.log(each) for each in probabilities]


def taught(
    draws: int, best: Sequence[float], truth: Sequence[float], acceptance: AcceptanceModel | None = None
) -> AcceptanceModel:
    """A model after many observations of a draft with probabilities `best` and a target with `truth`."""
    luck, learnt = random.Random(0), acceptance or AcceptanceModel()
    for _ in range(draws):
        chosen = luck.choices(range(len(truth) + 1), [*truth, 1 - sum(truth)])[0]
        see(learnt, logs(best), None if chosen == len(truth) else chosen)
    return learnt


@given(places=st.lists(st.tuples(LOGPROBS, st.integers(0, 5), st.lists(st.integers(0, 5), min_size=6)), max_size=60))
def test_chances_stay_chances_in_the_draft_s_order(
    places: list[tuple[list[float], int, list[int]]],
) -> None:
    acceptance = AcceptanceModel()
    for logprobs, chosen, kinds in places:
        familiar = kinds[: len(logprobs) + 1]
        see(acceptance, logprobs, chosen if chosen < len(logprobs) else None, familiar)
        shares, plain = acceptance.shares(logprobs, familiar), AcceptanceModel().shares(logprobs)
        assert all(0 <= share <= 1 for share in shares)
        assert (sum(shares), sum(plain)) == pytest.approx((1, 1))
        assert plain[:-1] == sorted(plain[:-1], reverse=True)


@given(logprobs=st.lists(st.floats(-30, -1e-6), min_size=1, max_size=5))
def test_logarithms_of_chances_are_those_of_the_chances(logprobs: list[float]) -> None:
    *chances, _ = AcceptanceModel().shares(logprobs)
    assert AcceptanceModel().log_shares(logprobs) == pytest.approx(logs(chances))


@pytest.mark.parametrize(
    ("best", "truth"),
    [
        pytest.param((0.9, 0.05, 0.02), (0.4, 0.02, 0.01), id="a draft too sure of itself"),
        pytest.param((0.15, 0.1, 0.08), (0.67, 0.2, 0.05), id="a draft too modest"),
        pytest.param((0.5, 0.3, 0.1), (0.5, 0.3, 0.1), id="a draft that is right about itself"),
    ],
)
def test_chances_become_what_happens(best: Sequence[float], truth: Sequence[float]) -> None:
    assert taught(400, best, truth).shares(logs(best))[:-1] == pytest.approx(list(truth), abs=0.12)


def test_a_draft_that_is_always_wrong_is_found_out_within_a_few_places_and_what_is_long_past_is_forgotten() -> None:
    best = (0.9, 0.05, 0.02)
    assert taught(8, best, (0.0, 0.0, 0.0)).shares(logs(best))[0] < 0.5
    best, good, bad = (0.6, 0.2, 0.1), (0.95, 0.03, 0.01), (0.1, 0.05, 0.05)
    changed, fresh = taught(150, best, bad, taught(1000, best, good)), taught(150, best, bad)
    assert changed.shares(logs(best))[0] == pytest.approx(fresh.shares(logs(best))[0], abs=0.05)


# Familiar tokens


def test_a_familiar_token_is_likelier_than_the_draft_thinks_and_the_more_so_the_more_familiar_it_is() -> None:
    logprobs = (-1.2, -1.5, -2.0)
    chances = [AcceptanceModel().shares(logprobs, (0, kind, 0, 0))[1] for kind in range(FAMILIARITIES)]
    assert chances == sorted(set(chances))
    assert chances[0] == AcceptanceModel().shares(logprobs)[1]


def test_where_another_token_is_the_familiar_one_all_guesses_are_doubted() -> None:
    doubted, plain = AcceptanceModel().shares((-0.1, -4.0), (0, 0, 5)), AcceptanceModel().shares((-0.1, -4.0))
    assert doubted[0] < plain[0]
    assert doubted[-1] > plain[-1]


@pytest.mark.parametrize(("chosen", "trusted"), [(0, True), (1, False), (None, False)])
def test_how_far_familiarity_is_trusted_is_learnt(chosen: int | None, trusted: bool) -> None:  # noqa: FBT001
    acceptance, logprobs, familiar = AcceptanceModel(), (-1.0, -1.1), (3, 0, 0)
    before = acceptance.shares(logprobs, familiar)[0] - acceptance.shares(logprobs)[0]
    for _ in range(30):
        see(acceptance, logprobs, chosen, familiar)
    after = acceptance.shares(logprobs, familiar)[0] - acceptance.shares(logprobs)[0]
    assert (after > before) == trusted


def test_one_kind_of_familiarity_says_nothing_of_another() -> None:
    acceptance, logprobs = AcceptanceModel(), (-1.0, -1.1)
    for _ in range(30):
        see(acceptance, logprobs, None, (1, 0, 0))
    learnt = acceptance.shares(logprobs, (2, 0, 0))[0] / acceptance.shares(logprobs, (2, 0, 0))[1]
    fresh = math.exp(2 * FAMILIAR + acceptance.sharpness * 0.1)
    assert learnt == pytest.approx(fresh)


# The step of one observation


THREE = (-0.4, -1.6, -2.3)
UNDRAFTED = -1.0
"""Initial log-weight of the undrafted tokens, so large that it and the sharpness are correlated."""
STEP = 1e-4
"""Step of finite differences."""


def log_share(at: NDArray[np.float64], chosen: int | None) -> float:
    """Log-likelihood of the target's choice; `at` contains the sharpness and the log-weight of undrafted tokens."""
    acceptance = AcceptanceModel()
    acceptance.sharpness, acceptance.undrafted = at.tolist()
    return math.log(acceptance.shares(THREE)[-1 if chosen is None else chosen])


def gradient(value: Callable[[NDArray[np.float64]], float], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gradient by central differences."""
    return np.array([(value(at + way) - value(at - way)) / (2 * STEP) for way in STEP * np.eye(2)])


def newton_step(chosen: int | None) -> NDArray[np.float64]:
    """Newton step from the initial values, with the precision of the prior plus that of the observation."""
    start = np.array([SHARPNESS, UNDRAFTED])

    def slope(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return gradient(lambda place: log_share(place, chosen), at)

    curvature = np.array([(slope(start + way) - slope(start - way)) / (2 * STEP) for way in STEP * np.eye(2)])
    step: NDArray[np.float64] = np.linalg.solve(np.diag(SURENESS) - curvature, slope(start))
    return step


@pytest.mark.parametrize("chosen", [0, 1, 2, None])
def test_one_choice_moves_both_numbers_by_a_newton_step(chosen: int | None) -> None:
    acceptance = AcceptanceModel()
    acceptance.undrafted = UNDRAFTED
    acceptance.learn(THREE, acceptance.shares(THREE), chosen)
    moved = (acceptance.sharpness - SHARPNESS, acceptance.undrafted - UNDRAFTED)
    assert moved == pytest.approx(newton_step(chosen), rel=1e-3)


@pytest.mark.parametrize(
    ("shares", "count", "second"),
    [
        pytest.param((0.7, 0.2, 0.1), 1, 0.0, id="an only child"),
        pytest.param((0.7, 0.2, 0.1), 2, 0.2, id="the first of two"),
        pytest.param((0.7, 0.3), 1, 0.0, id="the one token that is known, with all others"),
    ],
)
def test_a_second_guess_counts_where_it_became_a_node(shares: Sequence[float], count: int, second: float) -> None:
    acceptance = AcceptanceModel()
    acceptance.see(shares, count)
    weight = DECAY * PRIOR_COUNT + 1
    before = DECAY * PRIOR_COUNT
    expected = ((before * USUAL[0] + shares[0]) / weight, (before * USUAL[1] + second) / weight)
    assert acceptance.usual == pytest.approx(expected)

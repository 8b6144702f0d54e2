"""Acceptance probabilities adapt to the target's choices for overconfident and underconfident drafts."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.draft.suffix_automaton import FAMILIARITIES
from decoder.draft.tree_size.acceptance_model import FAMILIAR, AcceptanceModel

LOGPROBS = st.lists(st.floats(-30, -1e-6) | st.just(-math.inf), min_size=1, max_size=5).map(
    lambda found: sorted(found, reverse=True)
)


def taught(
    draws: int, best: Sequence[float], truth: Sequence[float], acceptance: AcceptanceModel | None = None
) -> AcceptanceModel:
    """A model after many observations of a draft with probabilities `best` and a target with `truth`."""
    luck = random.Random(0)
    learnt = acceptance or AcceptanceModel()
    for _ in range(draws):
        chosen = luck.choices(range(len(truth) + 1), [*truth, 1 - sum(truth)])[0]
        see(learnt, [math.log(q) for q in best], None if chosen == len(truth) else chosen)
    return learnt


def see(
    acceptance: AcceptanceModel, logprobs: Sequence[float], chosen: int | None, familiar: Sequence[int] = ()
) -> None:
    acceptance.learn(logprobs, acceptance.shares(logprobs, familiar), chosen, familiar)


@given(logprobs=LOGPROBS)
def test_chances_are_no_more_than_1_together_and_keep_the_draft_s_order(logprobs: list[float]) -> None:
    *chances, others = AcceptanceModel().shares(logprobs)
    assert sum(chances) + others == pytest.approx(1)
    assert chances == sorted(chances, reverse=True)


@given(logprobs=st.lists(st.floats(-30, -1e-6), min_size=1, max_size=5))
def test_logarithms_of_chances_are_those_of_the_chances(logprobs: list[float]) -> None:
    *chances, _ = AcceptanceModel().shares(logprobs)
    assert AcceptanceModel().log_shares(logprobs) == pytest.approx([math.log(chance) for chance in chances])


@pytest.mark.parametrize(
    ("best", "truth"),
    [
        pytest.param((0.9, 0.05, 0.02), (0.4, 0.02, 0.01), id="a draft too sure of itself"),
        pytest.param((0.15, 0.1, 0.08), (0.67, 0.2, 0.05), id="a draft too modest"),
        pytest.param((0.5, 0.3, 0.1), (0.5, 0.3, 0.1), id="a draft that is right about itself"),
    ],
)
def test_chances_become_what_happens(best: Sequence[float], truth: Sequence[float]) -> None:
    acceptance = taught(400, best, truth)
    *chances, _ = acceptance.shares([math.log(q) for q in best])
    assert chances == pytest.approx(list(truth), abs=0.12)


def test_a_draft_that_is_always_wrong_is_found_out_within_a_few_places() -> None:
    best = (0.9, 0.05, 0.02)
    acceptance = taught(8, best, (0.0, 0.0, 0.0))
    assert acceptance.shares([math.log(q) for q in best])[0] < 0.5


def test_what_is_long_past_is_forgotten() -> None:
    best, good, bad = (0.6, 0.2, 0.1), (0.95, 0.03, 0.01), (0.1, 0.05, 0.05)
    acceptance = taught(150, best, bad, taught(1000, best, good))
    fresh = taught(150, best, bad)
    logprobs = [math.log(q) for q in best]
    assert acceptance.shares(logprobs)[0] == pytest.approx(fresh.shares(logprobs)[0], abs=0.05)


@given(places=st.lists(st.tuples(LOGPROBS, st.integers(0, 5), st.lists(st.integers(0, 5), min_size=6)), max_size=60))
def test_chances_stay_chances_whatever_was_seen(places: list[tuple[list[float], int, list[int]]]) -> None:
    acceptance = AcceptanceModel()
    for logprobs, chosen, kinds in places:
        familiar = kinds[: len(logprobs) + 1]
        see(acceptance, logprobs, chosen if chosen < len(logprobs) else None, familiar)
        shares = acceptance.shares(logprobs, familiar)
        assert all(0 <= share <= 1 for share in shares)
        assert sum(shares) == pytest.approx(1)


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

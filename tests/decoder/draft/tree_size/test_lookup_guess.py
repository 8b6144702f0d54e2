"""Lookup guesses, their acceptance probabilities, and the gain of an additional draft."""

import itertools

import pytest

from decoder.draft.lookup import SuffixIndex
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.drafted_round import (
    DEEPEST,
    LookupGuess,
    acceptance_of_lookups,
    chain_gain,
    draft_adds,
)


def guess(text: list[int], acceptance: AcceptanceModel | None = None) -> LookupGuess:
    found = SuffixIndex(text).continuation()
    assert found is not None
    return LookupGuess(found, acceptance or acceptance_of_lookups())


def test_a_guess_after_a_longer_end_is_likelier() -> None:
    piece = list(range(1, 41))
    chances = [guess([*piece, *piece[:length]]).shares[0] for length in (2, 3, 7, 15, 31)]
    assert chances == sorted(chances)
    assert len(set(chances)) == len(chances)


def test_what_followed_more_often_is_likelier() -> None:
    found = guess([6, 7, 1, 6, 7, 1, 6, 7, 2, 6, 7])
    assert found.tokens == [1, 2]
    assert found.shares[0] > found.shares[1]


def test_guesses_and_all_others_are_everything_that_can_follow() -> None:
    assert sum(guess([6, 7, 1, 6, 7, 1, 6, 7, 2, 6, 7]).shares) == pytest.approx(1)


def test_a_chain_goes_on_as_long_as_it_is_likely_enough() -> None:
    piece = list(range(1, 101))
    found = guess([*piece, *piece[:20]])
    chances = found.chain(0.5)
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] >= 0.5 > found.chain(0.0)[len(chances)]
    assert len(found.chain(0.0)) == DEEPEST


def test_a_chain_ends_where_the_past_does() -> None:
    assert len(guess([1, 2, 3, 4, 5, 1, 2]).chain(0.0)) == 5


def test_what_was_right_all_the_time_becomes_likelier_and_what_was_wrong_less_so() -> None:
    for chosen, likelier in ((0, True), (None, False)):
        acceptance = acceptance_of_lookups()
        before = guess([1, 2, 3, 1, 2], acceptance)
        for _ in range(50):
            found = guess([1, 2, 3, 1, 2], acceptance)
            acceptance.learn(found.logprobs, found.shares, chosen, found.familiar)
        after = guess([1, 2, 3, 1, 2], acceptance)
        assert (after.shares[0] > before.shares[0]) is likelier
        assert abs(after.shares[0] - (1.0 if likelier else 0.0)) < 0.2


def test_noise_that_is_known_ranks_what_followed() -> None:
    """At each position, noise decides between equally frequent continuations."""
    text = [6, 7, 1, 8, 6, 7, 2, 9, 6, 7]
    favoured = {10: 1, 11: 8}
    noise = lambda position, tokens: [3.0 if token == favoured[position] else 0.0 for token in tokens]  # noqa: E731
    found = SuffixIndex(text).continuation()
    assert found is not None
    first = LookupGuess(found, acceptance_of_lookups(), len(text), noise)
    assert first.tokens == [1, 2]
    assert first.shares[0] > guess(text).shares[0] > first.shares[1]
    second, plain = first.after(1), guess(text).after(1)
    assert second is not None
    assert plain is not None
    assert second.shares[0] > plain.shares[0]


def test_a_token_that_did_not_follow_has_nothing_after_it() -> None:
    found = guess([1, 2, 3, 4, 1, 2])
    assert found.after(9) is None
    after = found.after(3)
    assert after is not None
    assert after.tokens == [4]


def test_a_chain_is_worth_what_its_best_length_brings() -> None:
    assert chain_gain([0.9, 0.8, 0.1], 1.0, [0.5, 1.0, 2.0]) == pytest.approx(0.7)
    assert chain_gain([0.2, 0.1], 1.0, [0.5, 1.0]) == 0
    assert chain_gain([0.9, 0.8], 1.0, [0.5]) == pytest.approx(0.4)
    assert chain_gain([], 1.0, []) == 0


def test_a_draft_adds_nothing_to_a_chain_that_is_right() -> None:
    free = itertools.repeat(1e-9, 8)
    assert not draft_adds([1.0] * 20, 0.9, 1.0, 1e-9, free)


def test_a_draft_that_guesses_well_adds_much_where_the_past_knows_little() -> None:
    assert draft_adds([0.1], 0.9, 1.0, 0.05, itertools.repeat(0.2, 8))
    assert not draft_adds([0.1], 0.9, 1.0, 0.05, itertools.repeat(2.0, 8))
    assert not draft_adds([0.1], 0.1, 1.0, 0.05, itertools.repeat(0.2, 8))


def test_a_first_pass_that_is_dear_may_pay_by_further_ones() -> None:
    levels_s = [1.5, *itertools.repeat(0.1, 7)]
    assert draft_adds([], 0.9, 1.0, 0.01, levels_s)
    assert not draft_adds([], 0.9, 1.0, 0.01, levels_s[:1])

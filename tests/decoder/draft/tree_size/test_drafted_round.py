"""Acceptance probabilities of lookup guesses next to those of the draft model."""

import pytest

from decoder.draft.tree_size.drafted_round import ModelGuesses


def grown(*shares: float) -> ModelGuesses:
    tokens = range(len(shares) - 1)
    return ModelGuesses(tokens, [-1.0] * len(tokens), [0] * len(shares), shares, 1, len(tokens))


def test_a_token_that_both_guess_has_the_draft_s_chance() -> None:
    assert grown(0.7, 0.1, 0.2).beside([1], [0.6, 0.4]) == [0.1]


def test_others_share_what_the_draft_leaves() -> None:
    assert grown(0.7, 0.1, 0.2).beside([8, 9], [0.5, 0.25, 0.25]) == pytest.approx([0.1, 0.05])


def test_a_guess_is_likelier_where_the_past_s_other_guesses_are_the_draft_s() -> None:
    """The lookup is certain of 0 or 9; if the token is none of the draft's guesses, it is 9."""
    assert grown(0.6, 0.4).beside([0, 9], [0.5, 0.5, 0.0]) == pytest.approx([0.6, 0.4])


def test_beside_a_draft_that_guesses_what_the_past_is_certain_of_others_keep_a_chance() -> None:
    """With noise one guess may be so much more probable than another that its probability rounds to 1."""
    assert grown(0.6, 0.4).beside([0, 9], [1.0, 1e-30, 1e-30]) == pytest.approx([0.6, 0.2])

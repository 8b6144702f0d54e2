"""The automaton finds the same repetitions as a slow search in the text."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.draft.suffix_automaton import FAMILIARITIES, FAMILIARITY, SuffixAutomaton

TOKENS = st.lists(st.integers(0, 2), max_size=24)


def occurs(piece: Sequence[int], text: Sequence[int]) -> bool:
    return any(list(text[start : start + len(piece)]) == list(piece) for start in range(len(text)))


def searched(text: list[int], path: list[int]) -> int:
    """Length of the longest common suffix that occurs in the text, before its end if there is no path."""
    before = text if path else text[:-1]
    whole = [*text, *path]
    lengths = range(len(whole), 0, -1)
    return next((length for length in lengths if occurs(whole[len(whole) - length :], before)), 0)


def found(text: list[int], path: list[int]) -> int:
    repeats = SuffixAutomaton(text)
    place = repeats.here
    for token in path:
        (place,), _ = repeats.ahead(place, [token])
    return place[1]


@given(text=TOKENS)
def test_the_end_of_the_text_is_found_where_it_was_before(text: list[int]) -> None:
    assert found(text, []) == searched(text, [])


@given(text=TOKENS, path=st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_a_path_is_followed_as_far_as_the_text_has_gone_the_same_way(text: list[int], path: list[int]) -> None:
    assert found(text, path) == searched(text, path)


@given(first=TOKENS, then=TOKENS)
def test_a_text_that_grows_is_the_same_as_one_that_was_there_at_once(first: list[int], then: list[int]) -> None:
    grown = SuffixAutomaton(first)
    grown.extend(then)
    assert grown.here == SuffixAutomaton([*first, *then]).here


def test_a_loop_is_more_familiar_each_time() -> None:
    lengths = [SuffixAutomaton([1, 2, 3] * times).here[1] for times in range(1, 5)]
    assert lengths == [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("length", "kind"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (8, 3), (16, 4), (31, 4), (32, 5)]
)
def test_pieces_are_told_apart_by_the_powers_of_two_of_their_length(length: int, kind: int) -> None:
    assert FAMILIARITY[length] == kind
    assert kind < FAMILIARITIES


def test_a_piece_that_has_been_there_for_ever_is_as_familiar_as_can_be() -> None:
    repeats = SuffixAutomaton([1, 2, 3] * 100)
    assert repeats.ahead(repeats.here, [9, 1])[1] == [0, FAMILIARITIES - 1, 0]


def test_the_token_that_came_before_is_the_familiar_one() -> None:
    repeats = SuffixAutomaton([1, 2, 3, 4, 5, 1, 2, 3])
    places, familiar = repeats.ahead(repeats.here, [9, 4, 1])
    assert [length for _, length in places] == [0, 4, 1]
    assert familiar == [0, 2, 0, 0]


def test_where_none_of_the_guesses_came_before_another_token_is_familiar() -> None:
    repeats = SuffixAutomaton([1, 2, 3, 4, 5, 1, 2, 3])
    assert repeats.ahead(repeats.here, [9, 8])[1] == [0, 0, 2]


def test_where_nothing_is_said_again_no_token_is_familiar() -> None:
    repeats = SuffixAutomaton([1, 2, 3])
    assert repeats.ahead(repeats.here, [1, 9])[1] == [0, 0, 0]


def test_a_long_text_is_taken_in_at_once() -> None:
    """A search would take seconds; an automaton has at most two states per token."""
    text = [token * token % 97 for token in range(20_000)]
    repeats = SuffixAutomaton(text)
    assert repeats.here[1] == 20_000 - 97

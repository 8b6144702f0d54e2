"""Tests of a text's tokens: the tokens of each round, search hits, and repetitions."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Round
from dynatui.state.tokens import FARTHEST, Token, entry_of, hits, repeated_length, tokens_of
from tests.dynatui.scripted_runs import HOSTILE, plain_round, tree_round

WORDS = ["The", " moon", " was", " fu", "ll.\n", "A", " full", " Moon", "", "light"]
NUMBERS = st.lists(st.integers(0, 2), max_size=24)


def told(text: str, *pieces: str, committed: int = 3) -> Round:
    first, second = (*pieces, "", "")[:2]
    shown = ["", first, "", second, "", ""]
    return structs.replace(tree_round(4), text=text, pieces=shown, committed=list(range(committed)))


def texts(event: Round) -> list[str]:
    return [token.text for token in tokens_of(event, 0.03)]


def test_accepted_tokens_know_their_node_depth_and_probability() -> None:
    first, second, last = tokens_of(told(" a time.", " a", " time"), 0.03)
    assert (first.text, first.origin, first.node, first.depth) == (" a", "accepted", 1, 1)
    assert (second.text, second.origin, second.node, second.depth) == (" time", "accepted", 3, 2)
    assert math.isclose(first.probability or 0, 0.6)
    assert math.isclose(second.probability or 0, 0.5)
    assert last == Token(".", "bonus", 4, 3, None, None, 0.01)


ONE_BURST = structs.replace(plain_round("hf", 0), draft_forwards=None, committed=[1, 2, 3, 4], text=" four at once")


@pytest.mark.parametrize(
    ("event", "tokens"),
    [
        (told("世!", "\ufffd", "\ufffd"), [("", "accepted"), ("", "accepted"), ("世!", "bonus")]),
        (told(" then", " there", "x"), [(" the", "accepted"), ("", "accepted"), ("n", "bonus")]),
        (told(" a time", " a", " time", committed=2), [(" a", "accepted"), (" time", "accepted")]),
        (told(" a", " a", " time", committed=1), [(" a", "accepted")]),
        (plain_round("ar", 3), [(" at", "bonus")]),
        (ONE_BURST, [(" four at once", "plain")]),
    ],
    ids=[
        *("a character in two halves", "a piece that the text does not follow", "cut after its path"),
        *("cut within its path", "without a draft", "a draft that is not shown"),
    ],
)
def test_the_text_of_a_round_is_divided_among_its_tokens_which_share_its_time(
    event: Round, tokens: list[tuple[str, str]]
) -> None:
    found = tokens_of(event, 0.06)
    assert [(token.text, token.origin) for token in found] == tokens
    assert {(token.round, token.spent_s) for token in found} == {(event.round, 0.06 / len(event.committed))}
    assert [token.depth for token in found] == [*range(1, len(found) + 1)]
    assert [token.node for token in found if token.origin == "accepted"] == [1, 3][: len(event.accepted)][: len(found)]


def test_nothing_that_could_steer_a_terminal_is_left() -> None:
    assert not any("\x1b" in text or "\x07" in text for text in texts(told(HOSTILE, HOSTILE[:7], HOSTILE[7:9])))


PIECES = st.text(alphabet="ab \n世", max_size=4)


@given(PIECES, st.lists(PIECES, max_size=2), st.integers(0, 4))
def test_the_tokens_always_add_up_to_the_text(text: str, pieces: list[str], committed: int) -> None:
    found = tokens_of(told(text, *pieces, committed=committed), 0.03)
    assert "".join(token.text for token in found) == text
    assert len(found) == max(1, committed)


def test_a_generated_token_is_found_by_its_number() -> None:
    rounds = [tree_round(number) for number in range(3)]
    tokens = [token for event in rounds for token in tokens_of(event, 0.03)]
    assert [entry_of(position, tokens, rounds) for position in (0, 4, 8)] == [0, 4, 8]
    assert entry_of(9, tokens, rounds) is None


def test_every_number_of_a_burst_is_its_one_entry() -> None:
    rounds = [ONE_BURST, structs.replace(ONE_BURST, round=1, position=4)]
    tokens = [token for event in rounds for token in tokens_of(event, 0.04)]
    assert [entry_of(position, tokens, rounds) for position in (0, 3, 4, 7)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("moon", [range(1, 2), range(7, 8)]),
        ("Moon", [range(7, 8)]),
        ("full", [range(3, 5), range(6, 7)]),
        ("full. a", [range(3, 6)]),
        ("moonlight", [range(7, 10)]),
        ("  was  ", [range(2, 3)]),
        ("sun", []),
        ("", []),
        ("  ", []),
        ("l.", [range(4, 5)]),
    ],
)
def test_words_are_found_across_tokens_lines_and_capitals(query: str, found: list[range]) -> None:
    assert list(hits(query, WORDS)) == found


def test_letters_whose_capitals_are_longer_keep_their_places() -> None:
    assert hits("b", ["ẞß", "İ", "b"]) == (range(2, 3),)


def longest(text: list[int], path: list[int]) -> int:
    whole = [*text, *path]
    lengths = range(len(text), 0, -1)
    found = (n for n in lengths if any(text[i : i + n] == whole[len(whole) - n :] for i in range(len(text) - n + 1)))
    return next(found, 0)


@given(NUMBERS, NUMBERS.filter(bool))
def test_a_repetition_is_the_longest_suffix_that_the_text_holds(text: list[int], path: list[int]) -> None:
    assert repeated_length(text, path) == longest(text, path)


def test_a_token_is_compared_whole_whatever_its_number() -> None:
    assert repeated_length([7, 1 << 53, 8], [7, 1 << 53]) == 2
    assert repeated_length([7, (1 << 53) - 1, 8], [7, 1 << 53]) == 0


@pytest.mark.wall_time
def test_a_long_text_of_one_token_is_searched_within_a_frame() -> None:
    began = time.perf_counter()
    assert repeated_length([5] * 200_000, [5] * 8) == FARTHEST
    assert time.perf_counter() - began < 0.1

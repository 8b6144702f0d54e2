"""Texts for search and check start at different places; too few texts are refused."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.errors import PromptError
from dynatui.lab.tuning.job import FEWEST, SHORTEST, WANTED, split, whole


def prompts(count: int, tokens: int) -> list[list[int]]:
    return [[number] * 3 + list(range(tokens - 3)) for number in range(count)]


def test_a_dozen_prompts_are_cut_but_none_serves_both() -> None:
    found = split(prompts(12, 60), 16)
    assert not {passage[0] for passage in found.search} & {passage[0] for passage in found.check}
    assert len(found.search) == len(found.check) >= WANTED


def test_the_end_of_a_prompt_cut_for_both_is_for_the_check_and_one_given_twice_counts_once() -> None:
    (prompt,) = prompts(1, 300)
    found = split([prompt], 64)
    assert max(map(len, found.search)) < min(map(len, found.check))
    assert max(map(len, found.check)) == 300
    assert all(tuple(prompt[: len(passage)]) == passage for passage in (*found.search, *found.check))
    assert split([prompt, prompt], 64) == found
    assert split(prompts(3, 400), 64).prompts == 3


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(1, 500))
def test_no_text_serves_both_and_both_have_enough(lengths: list[int], length: int) -> None:
    given_ = [[number, *range(length - 1)] for number, length in enumerate(lengths)]
    try:
        found = split(given_, length)
    except PromptError:
        assert len(lengths) < 2 * FEWEST
        assert max(lengths) < 2 * FEWEST * SHORTEST
        return
    assert min(len(found.search), len(found.check)) >= FEWEST
    assert not set(found.search) & set(found.check)
    assert all((*found.search, *found.check))


def test_many_prompts_and_chat_prompts_are_left_whole_and_every_other_one_is_kept_for_the_check() -> None:
    many, few = prompts(2 * WANTED, 20), prompts(13, 200)
    for found, those in ((split(many, 64), many), (whole([*few, few[0]]), few)):
        assert (found.search, found.check) == (tuple(map(tuple, those[::2])), tuple(map(tuple, those[1::2])))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: split(prompts(2, 20), 64),
            "2 different prompts of 40 tokens in all cannot be split into texts for the search and texts for the "
            "check; give 12 prompts or more, or one prompt of 96 tokens or more",
        ),
        (
            lambda: whole(prompts(11, 1000)),
            "11 different chat prompts cannot be split into texts for the search and texts for the check, since chat "
            "prompts are not cut; give 12 prompts or more, or omit --chat",
        ),
    ],
)
def test_what_is_too_little_is_refused_with_what_would_do(make: Callable[[], object], said: str) -> None:
    with pytest.raises(PromptError) as refused:
        make()
    assert str(refused.value) == said


@pytest.mark.parametrize(("tokens", "apart"), [(2000, 100), (300, 300 // (2 * FEWEST))])
def test_beginnings_of_a_prompt_are_as_far_apart_as_texts_are_long_or_as_enough_of_them_allow(
    tokens: int, apart: int
) -> None:
    found = split(prompts(1, tokens), 100)
    lengths = sorted(map(len, (*found.search, *found.check)))
    assert min(longer - shorter for shorter, longer in pairwise(lengths)) >= apart
    assert len(found.search) == len(found.check) >= FEWEST
    assert tokens > 300 or len(lengths) == 2 * FEWEST

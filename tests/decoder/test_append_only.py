"""Sequences shared by the successive states of a fold."""

import time

from hypothesis import given
from hypothesis import strategies as st

from decoder.append_only import SharedList, TokenLog

lists = st.lists(st.integers(0, 3), max_size=30)


@given(lists, lists, lists)
def test_a_state_keeps_its_items_whatever_another_adds(first: list[int], left: list[int], right: list[int]) -> None:
    base = SharedList(first)
    one, other = base.plus(left), base.plus(right)
    assert (list(base), list(one), list(other)) == (first, first + left, first + right)


@given(lists, lists, st.slices(40))
def test_it_is_read_like_a_tuple(first: list[int], more: list[int], part: slice) -> None:
    grown, beyond = SharedList(first), SharedList(first).plus(more)
    assert grown[part] == tuple(first)[part]
    assert beyond == tuple(first + more)
    assert len(beyond) == len(first) + len(more)
    assert [beyond[-1 - i] for i in range(len(beyond))] == (first + more)[::-1]


def share(tokens: list[int]) -> tuple[int, int]:
    """Number of distinct runs of 8 tokens, and number of all such runs."""
    runs = [tuple(tokens[i : i + 8]) for i in range(len(tokens) - 7)]
    return len(set(runs)), len(runs)


@given(st.lists(st.lists(st.integers(0, 1), max_size=12), max_size=12))
def test_distinct_runs_are_counted_as_the_text_grows(bursts: list[list[int]]) -> None:
    log, text = TokenLog(), list[int]()
    for burst in bursts:
        log, text = log.plus(burst), text + burst
        assert (log.distinct, log.runs) == share(text)


@given(lists, lists, lists)
def test_texts_that_part_are_counted_by_themselves(first: list[int], left: list[int], right: list[int]) -> None:
    base = TokenLog().plus(first)
    one, other = base.plus(left), base.plus(right)
    again = base.plus(left)
    assert (one.distinct, other.distinct, again.distinct) == tuple(share(first + x)[0] for x in (left, right, left))


def test_a_long_text_costs_no_more_per_token_than_a_short_one() -> None:
    log, began = TokenLog(), time.process_time()
    for token in range(50_000):
        log = log.plus([token])
    assert time.process_time() - began < 2

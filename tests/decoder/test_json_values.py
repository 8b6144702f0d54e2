"""Numbers beyond every range are found in any JSON."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.json_values import LARGEST, leaves, too_large

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | st.floats(-1e19, 1e19) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(JSON)
def test_what_is_within_the_range_is_not_too_large(value: object) -> None:
    assert too_large(value) is None


@settings(max_examples=40)
@given(JSON, st.sampled_from([10**400, -(10**400), 1e308, LARGEST + 1, float("nan"), float("inf")]))
def test_a_number_beyond_the_range_is_found_wherever_it_is(value: object, number: float) -> None:
    assert too_large({"a": [value, {"b": number}]}) is number


def test_keys_and_values_are_leaves() -> None:
    assert sorted(map(str, leaves({"a": [1, {"b": "c"}], "d": None}))) == ["1", "None", "a", "b", "c", "d"]


@pytest.mark.parametrize("depth", [10, 900])
def test_deep_nesting_needs_no_deep_stack(depth: int) -> None:
    assert list(leaves(json.loads("[" * depth + "1" + "]" * depth))) == [1]

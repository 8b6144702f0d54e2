"""The library chooses the tokens that a sort would choose, with torch's log-probabilities."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from decoder.forward.compiled.best import best_tokens
from decoder.forward.compiled.library import library

NUMBERS = st.one_of(st.sampled_from([-math.inf, -2.0, 0.0, 1.0, 1.0]), st.floats(-40, 40, width=32))


def sorted_tokens(row: Tensor, count: int) -> list[int]:
    """Of equal tokens, the one with the lower id comes first."""
    return sorted(range(len(row)), key=lambda token: (-float(row[token]), token))[:count]


def chosen(rows: Tensor, count: int, own: Tensor | None = None) -> list[tuple[list[int], list[float], list[float]]]:
    found = library()
    assert found is not None
    return [*best_tokens(found, rows, count, own)]


@given(st.integers(1, 70), st.integers(1, 3), st.integers(1, 5), st.data())
@settings(max_examples=60, deadline=None)
def test_they_are_those_of_a_sort_with_the_logprobs_of_torch(
    width: int, rows: int, count: int, data: st.DataObject
) -> None:
    numbers = data.draw(st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=rows, max_size=rows))
    logits, count = torch.tensor(numbers), min(count, width)
    before, own = logits.clone(), logits.flip(1).contiguous()
    for row, (tokens, logprobs, owns) in enumerate(chosen(logits, count, own)):
        right = logits[row].log_softmax(-1)[tokens]
        if logits[row].isfinite().any():
            possible = sum(map(math.isfinite, logprobs))
            assert tokens[:possible] == sorted_tokens(logits[row], count)[:possible]
            assert possible == min(count, int(logits[row].isfinite().sum()))
            torch.testing.assert_close(torch.tensor(logprobs[:possible]), right[:possible], rtol=1e-5, atol=1e-5)
            assert all(logprob == -math.inf for logprob in logprobs[possible:])
            torch.testing.assert_close(torch.tensor(owns), own[row].log_softmax(-1)[tokens], rtol=1e-5, atol=1e-5)
        else:
            assert all(map(math.isnan, logprobs))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_row_with_a_number_that_is_none_has_no_logprobs(strange: float) -> None:
    for place in (0, 20, 33):
        logits = torch.zeros(2, 34)
        logits[1, place] = strange
        (_, good, _), (_, bad, _) = chosen(logits, 2)
        assert not any(map(math.isnan, good))
        assert all(map(math.isnan, bad))


def test_rows_may_be_part_of_wider_rows() -> None:
    wide = torch.arange(40.0).reshape(2, 20)
    assert [tokens for tokens, *_ in chosen(wide[:, :7], 2)] == [[6, 5], [6, 5]]

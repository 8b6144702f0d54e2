"""Truncation on a device excludes exactly what the host's truncation of each row excludes."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import DeviceTruncation, truncation_mask
from tests.decoder.sampling.truncated_rows import HALF_AND_FLOAT, SETTINGS, kept_by_host, rows, truncation


def kept(logits: Tensor, *each: Sampling) -> Tensor:
    """What the device keeps, with one setting for all rows or one for each row."""
    return ~truncation(DeviceTruncation.of, logits.shape[1], *each).excluded(logits)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("dtype", HALF_AND_FLOAT)
@pytest.mark.parametrize("vocabulary", [1, 2, 7, 50, 3001])
def test_what_is_kept_is_what_the_host_keeps(vocabulary: int, dtype: torch.dtype, sampling: Sampling) -> None:
    logits = rows(vocabulary, dtype)
    assert torch.equal(kept(logits, sampling), truncation_mask(logits, sampling))
    assert torch.equal(kept(logits[:1], sampling), truncation_mask(logits[:1], sampling))


@pytest.mark.parametrize("dtype", HALF_AND_FLOAT)
@pytest.mark.parametrize("vocabulary", [32003, 50277, 50304, 151643, 151936])
def test_large_vocabularies_keep_what_the_host_keeps(vocabulary: int, dtype: torch.dtype) -> None:
    logits = rows(vocabulary, dtype)
    each = [SETTINGS[number] for number in (0, 1, 2, 7, 2, 6)]
    assert torch.equal(kept(logits, *each), kept_by_host(logits, *each))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([-math.inf, -2.0, -0.5, 0.0, 0.25, 1.0, 3.0]), min_size=2, max_size=12).filter(
        lambda row: max(row) > -math.inf
    ),
    st.sampled_from([0.3, 1.0, 2.0]),
    st.integers(0, 13),
    st.just(997) | st.integers(1, 997),
)
def test_a_row_of_ties_keeps_what_the_host_keeps(row: list[float], temperature: float, top_k: int, part: int) -> None:
    """No number of equal tokens has exactly the share of top-p, so rounding does not decide."""
    sampling, logits = Sampling(temperature, top_k, part / 997), torch.tensor([row])
    assert torch.equal(kept(logits, sampling), truncation_mask(logits, sampling))


def test_of_equal_logits_those_with_lower_ids_are_kept_up_to_the_share() -> None:
    """The tokens before the third have the probability 1 / 2, which is the share, so the third is excluded."""
    logits = torch.tensor([[0.0, 1.0, 0.0, 1.0]]).log()
    assert kept(logits, Sampling(1.0, top_p=0.5)).tolist() == [[False, True, False, False]]
    assert kept(torch.zeros(1, 4), Sampling(1.0, top_p=0.5)).tolist() == [[True, True, False, False]]
    assert kept(torch.zeros(1, 4), Sampling(1.0, top_p=0.51)).tolist() == [[True, True, True, False]]


def test_the_share_is_one_of_the_tokens_within_top_k() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    counts = [int(kept(logits, Sampling(1.0, top_k, 0.6)).sum()) for top_k in (1, 2, 3, 4)]
    assert counts == [1, 2, 2, 2]
    shares = [int(kept(logits, Sampling(1.0, top_k=3, top_p=share)).sum()) for share in (0.4, 0.5, 0.9)]
    assert shares == [1, 2, 3]
    assert all(one <= other for one, other in pairwise(shares))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_row_of_settings_serves_all_rows_of_logits(index: int) -> None:
    logits = rows(50, torch.float32)
    every = truncation(DeviceTruncation.of, 50, *SETTINGS[:3])
    assert torch.equal(every.row(index).excluded(logits), ~kept(logits, SETTINGS[index]))

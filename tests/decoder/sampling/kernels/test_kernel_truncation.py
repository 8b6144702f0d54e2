"""The kernel excludes exactly what the host's truncation of each row excludes.

Masks may differ only where the probability of the tokens before one equals the share but for rounding: 1e-12 of it.
"""

from itertools import cycle

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")


from decoder.sampling.kernels import searched_truncation
from decoder.sampling.kernels.searched_truncation import SearchedTruncation
from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import DeviceTruncation
from tests.decoder.sampling.truncated_rows import SETTINGS, kept_by_host, rows, truncation
from tests.triton_tools import loads_of

BY_INTERPRETER = pytest.mark.usefixtures("by_interpreter")
BOTH = torch.float16, torch.float32
DTYPES = pytest.mark.parametrize("dtype", BOTH, ids=str)
WIDER = 5
"""Number of columns beyond the vocabulary, as the models' vocabularies may have."""


def kept(logits: Tensor, *each: Sampling) -> Tensor:
    """What the kernel keeps; the plain class must keep the same."""
    found, plain = (
        ~truncation(truncating, logits.shape[1], *each).excluded(logits)
        for truncating in (SearchedTruncation.of, DeviceTruncation.of)
    )
    assert torch.equal(found, plain)
    return found


@BY_INTERPRETER
@pytest.mark.parametrize(("sampling", "dtype"), zip([*SETTINGS, Sampling(1.0)], cycle(BOTH)), ids=str)
def test_what_is_kept_is_what_the_host_keeps(
    dtype: torch.dtype, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched_truncation, "BLOCK", 32)
    logits = rows(151 + WIDER, dtype)[:, :151]
    assert torch.equal(kept(logits, *[sampling] * len(logits)), kept_by_host(logits, *[sampling] * len(logits)))


@BY_INTERPRETER
@pytest.mark.parametrize(
    ("vocabulary", "dtype"), [(32003, torch.float16), (50304, torch.float32), (151643, torch.float32)], ids=str
)
def test_large_vocabularies_are_searched_to_their_ends(
    vocabulary: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched_truncation, "BLOCK", 1 << 13)
    logits, each = rows(vocabulary + WIDER, dtype)[:, :vocabulary], (SETTINGS[0], SETTINGS[7])
    logits[:2, [vocabulary - 1, 7]] = 60.0
    found = kept(logits[:2], *each)
    assert torch.equal(found, kept_by_host(logits[:2], *each))
    assert found[:, [7, vocabulary - 1]].all()


@BY_INTERPRETER
@pytest.mark.parametrize(("top_k", "dtype"), [(1, torch.float32), (3, torch.float16), (6, torch.float32)], ids=str)
def test_of_equal_logits_the_lower_ids_are_kept_over_several_blocks(
    top_k: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched_truncation, "BLOCK", 4)
    logits = torch.tensor([[1, 2, -0.0, 1, 0, 2, 1, 0, -1], [1] * 9], dtype=dtype)
    assert kept(logits, Sampling(1.0, top_k))[1].tolist() == [rank < top_k for rank in range(9)]
    nucleus = Sampling(0.7, top_k, 0.6)
    assert torch.equal(kept(logits, nucleus), kept_by_host(logits, nucleus, nucleus))


@BY_INTERPRETER
@DTYPES
@pytest.mark.parametrize("sampling", [Sampling(1.0, 7), Sampling(1.0, top_p=0.9), Sampling(1.0, 9, 0.9)], ids=str)
@pytest.mark.parametrize("crowded", [4, 5, 9])
def test_more_of_the_best_logits_than_a_lane_lists_are_kept(
    crowded: int, sampling: Sampling, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched_truncation, "BLOCK", 16)
    logits = torch.randn((1, 160), generator=torch.Generator().manual_seed(crowded)).to(dtype)
    logits[0, 2 : 2 + 16 * crowded : 16] = 5 + torch.arange(crowded, dtype=dtype) / 8
    assert torch.equal(kept(logits, sampling), kept_by_host(logits, sampling))


@BY_INTERPRETER
@DTYPES
@pytest.mark.parametrize("sampling", [Sampling(1.0), SETTINGS[6], SETTINGS[0], SETTINGS[7]], ids=str)
@pytest.mark.parametrize("listed", [True, False])
def test_a_row_is_read_as_often_as_is_said(
    dtype: torch.dtype, sampling: Sampling, monkeypatch: pytest.MonkeyPatch, *, listed: bool
) -> None:
    """Of equal logits, a search finds the highest only in the row itself."""
    vocabulary, block = 1111, 128
    monkeypatch.setattr(searched_truncation, "BLOCK", block)
    logits = torch.zeros((1, vocabulary), dtype=dtype)
    if listed:
        logits[0, :block] = torch.linspace(9, 1, block)
    said = searched_truncation.row_passes(
        8 * dtype.itemsize, top_k=sampling.top_k > 0, top_p=sampling.top_p < 1, listed=listed
    )
    with loads_of(logits) as sizes:
        truncation(SearchedTruncation.of, vocabulary, sampling).excluded(logits)
    assert sum(sizes) == said * vocabulary


def test_a_usual_row_is_read_two_or_three_times() -> None:
    for code_bits in (16, 32):
        assert searched_truncation.row_passes(code_bits, top_k=True, top_p=True) == 2
        assert searched_truncation.row_passes(code_bits, top_k=True, top_p=False) == 2
        assert searched_truncation.row_passes(code_bits, top_k=False, top_p=True) == 3


@BY_INTERPRETER
def test_tokens_before_which_the_share_is_reached_are_excluded() -> None:
    """The tokens before the third have the probability 1 / 2, which is the share."""
    logits = torch.zeros(1, 4)
    assert [int(kept(logits, Sampling(1.0, top_p=share)).sum()) for share in (0.25, 0.5, 0.51)] == [1, 2, 3]


@BY_INTERPRETER
def test_the_most_probable_token_is_kept_with_the_smallest_share() -> None:
    logits = torch.tensor([[-3.0, -1.0, -1.0, -torch.inf]])
    assert kept(logits, Sampling(1.0, top_p=5e-324)).tolist() == [[False, True, False, False]]
    assert kept(logits[:, :1], Sampling(1.0, 1, 5e-324)).tolist() == [[True]]


@BY_INTERPRETER
def test_one_row_of_settings_serves_all_rows_of_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searched_truncation, "BLOCK", 32)
    logits = rows(50, torch.float32)
    every = truncation(SearchedTruncation.of, 50, *SETTINGS[:3])
    assert torch.equal(every.row(1).excluded(logits), ~kept(logits, SETTINGS[1]))

"""The kernel excludes exactly what the host's truncation of each row excludes.

Masks may differ only where the probability of the tokens before one equals the share but for rounding: 1e-12 of it.
"""

from itertools import product

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")


from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import DeviceTruncation
from decoder.session.cuda_graph.kernels import searched_truncation
from decoder.session.cuda_graph.kernels.searched_truncation import SearchedTruncation
from tests.decoder.sampling.truncated_rows import SETTINGS, kept_by_host, rows, truncation
from tests.triton_tools import loads_of

BY_INTERPRETER = pytest.mark.usefixtures("by_interpreter")
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
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
@pytest.mark.parametrize(("dtype", "apart"), [(torch.float16, 2), (torch.float32, 4)], ids=str)
def test_what_is_kept_is_what_the_host_keeps(dtype: torch.dtype, apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row of logits has its own settings; of all pairs of kinds of rows and settings, every `apart`-th. The rows
    are longer than the lists of the best logits.
    """
    monkeypatch.setattr(searched_truncation, "BLOCK", 32)
    pairs = list(product(rows(151 + WIDER, dtype), [*SETTINGS, Sampling(1.0)]))[::apart]
    logits, each = torch.stack([row for row, _ in pairs])[:, :151], [sampling for _, sampling in pairs]
    assert torch.equal(kept(logits, *each), kept_by_host(logits, *each))


@BY_INTERPRETER
@pytest.mark.parametrize(
    ("vocabulary", "dtype"), [(32003, torch.float32), (65536, torch.float16), (151643, torch.float16)], ids=str
)
def test_large_vocabularies_are_searched_to_their_ends(
    vocabulary: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched_truncation, "BLOCK", 1 << 14)
    logits, each = rows(vocabulary + WIDER, dtype)[:, :vocabulary], (SETTINGS[0], SETTINGS[7])
    logits[:2, [vocabulary - 1, 7]] = 60.0
    found = kept(logits[:2], *each)
    assert torch.equal(found, kept_by_host(logits[:2], *each))
    assert found[:, [7, vocabulary - 1]].all()


@BY_INTERPRETER
@DTYPES
def test_of_equal_logits_the_lower_ids_are_kept_over_several_blocks(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched_truncation, "BLOCK", 4)
    equal, mixed = torch.ones(9, dtype=dtype), torch.tensor([1, 2, -0.0, 1, 0, 2, 1, 0, -1], dtype=dtype)
    ranks, nuclei = ([Sampling(t, top_k, share) for top_k in (1, 3, 6)] for t, share in ((1.0, 1.0), (0.7, 0.6)))
    each = [*ranks, *nuclei, *nuclei, ranks[1]]
    logits = torch.stack([equal] * 6 + [mixed] * 4)
    found = kept(logits, *each)
    assert torch.equal(found, kept_by_host(logits, *each))
    assert found[:3].tolist() == [[rank < sampling.top_k for rank in range(9)] for sampling in ranks]


@BY_INTERPRETER
@pytest.mark.parametrize(("dtype", "apart"), [(torch.float16, 2), (torch.float32, 4)], ids=str)
def test_more_of_the_best_logits_than_a_lane_lists_are_kept(
    dtype: torch.dtype, apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched_truncation, "BLOCK", 16)
    settings = (Sampling(1.0, 7), Sampling(1.0, top_p=0.9), Sampling(1.0, 9, 0.9))
    pairs = list(product((3, 4, 5, 9), settings))[::apart]
    logits = torch.randn((len(pairs), 160), generator=torch.Generator().manual_seed(3)).to(dtype)
    for row, (crowded, _) in zip(logits, pairs, strict=True):
        row[2 : 2 + 16 * crowded : 16] = 5 + torch.arange(crowded, dtype=dtype) / 8
    each = [sampling for _, sampling in pairs]
    assert torch.equal(kept(logits, *each), kept_by_host(logits, *each))


@BY_INTERPRETER
@pytest.mark.parametrize(
    ("dtype", "sampling"),
    [
        *((torch.float16, each) for each in (Sampling(1.0), *(SETTINGS[n] for n in (6, 0, 7)))),
        (torch.float32, SETTINGS[7]),
    ],
    ids=str,
)
def test_a_row_is_read_as_often_as_is_said(
    dtype: torch.dtype, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary, block = 555, 128
    monkeypatch.setattr(searched_truncation, "BLOCK", block)
    logits = torch.zeros((1, vocabulary), dtype=dtype)
    logits[0, :block] = torch.linspace(9, 1, block)
    said = searched_truncation.row_passes(top_k=sampling.top_k > 0, top_p=sampling.top_p < 1)
    with loads_of(logits) as sizes:
        truncation(SearchedTruncation.of, vocabulary, sampling).excluded(logits)
    assert sum(sizes) == said * vocabulary


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
    monkeypatch.setattr(searched_truncation, "BLOCK", 64)
    logits = rows(50, torch.float16)[:2]
    every = truncation(SearchedTruncation.of, 50, *SETTINGS[:3])
    for index in (0, 2):
        assert torch.equal(every.row(index).excluded(logits), ~kept_by_host(logits, *[SETTINGS[index]] * 2))

"""Tensors in huge pages: the numbers, their places, and systems without such pages."""

import mmap

import pytest
import torch

from decoder.forward.compiled.huge_pages import CHUNK, PAGE, Pool, zeros


def test_copies_are_equal_aligned_and_without_gaps() -> None:
    pool = Pool()
    originals = [torch.randn(3, 5), torch.randn(7).bfloat16(), torch.randn(2, 3, 4), torch.empty(0, 4)]
    copies = [pool.copied(tensor) for tensor in originals]
    for original, copy in zip(originals, copies, strict=True):
        assert torch.equal(original, copy)
        assert copy.is_contiguous()
        assert copy.data_ptr() % 64 == 0
    assert copies[2].data_ptr() - copies[0].data_ptr() == 64 + 64


def test_more_than_a_chunk_and_what_does_not_fit_into_the_rest_of_one_are_copied_too() -> None:
    pool = Pool()
    sizes = [CHUNK - 64, 128, CHUNK + 64]
    originals = [torch.arange(size // 4, dtype=torch.int32) for size in sizes]
    copies = [pool.copied(tensor) for tensor in originals]
    assert all(torch.equal(one, other) for one, other in zip(originals, copies, strict=True))


@pytest.mark.parametrize("rows", [1, PAGE // 4 - 1, PAGE // 4, 3 * PAGE // 4 + 1])
def test_zeros_are_zeros_of_exactly_this_size(rows: int) -> None:
    found = zeros((rows, 1))
    assert not found.any()
    assert (found.shape, found.untyped_storage().nbytes()) == ((rows, 1), 4 * rows)
    assert rows * 4 < PAGE or found.data_ptr() % PAGE == 0


def test_a_mapping_is_released_with_its_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    open_mappings = []

    class Mapping(mmap.mmap):
        def __init__(self, *_: object) -> None:
            open_mappings.append(self)

        def __del__(self) -> None:
            released.append(1)

    released = list[int]()
    monkeypatch.setattr(mmap, "mmap", Mapping)
    found = zeros((PAGE, 2))
    open_mappings.clear()
    assert not released
    del found
    assert released


@pytest.mark.parametrize("lacking", ["a system", "a kernel"])
def test_without_huge_pages_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    class Mapping(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(22, "Invalid argument")

    if lacking == "a system":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    else:
        monkeypatch.setattr(mmap, "mmap", Mapping)
    assert torch.equal(zeros((PAGE,)), torch.zeros(PAGE))

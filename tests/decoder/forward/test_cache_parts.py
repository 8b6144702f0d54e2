"""A KV cache for layers of different shapes has one tensor per part, and all parts have the same rows."""

from typing import Any

import pytest
import torch
from torch import Tensor

from decoder.forward.kv_cache import KEYS, VALUES, KvCache

CAPACITY = 6


def empty(layers: int = 1) -> KvCache:
    return KvCache(torch.zeros((layers, 2, 0, CAPACITY, 0)))


def rows(numbers: list[int], heads: int, width: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)[None, :, None].expand(heads, -1, width).clone()


def passed(cache: KvCache, numbers: list[int]) -> dict[str, Any]:
    """Row numbers of each part that a pass with these new rows reads; values are narrower than keys."""
    read = {
        KEYS: cache.append_part((KEYS, 0), rows(numbers, 1, 3), 1),
        VALUES: cache.append_part((VALUES, 0), rows(numbers, 2, 2), 1),
        "indexer": cache.append_part(("indexer", 0), rows(numbers, 1, 4)[0], 0),
    }
    cache.settle()
    cache.used += len(numbers)
    return {what: part.reshape(-1, part.shape[-2], part.shape[-1])[0, :, 0].tolist() for what, part in read.items()}


def in_each(numbers: list[int]) -> dict[str, list[int]]:
    return {KEYS: numbers, VALUES: numbers, "indexer": numbers}


def test_every_pass_reads_all_rows_of_each_part() -> None:
    cache = empty()
    assert passed(cache, [1, 2]) == in_each([1, 2])
    assert passed(cache, [3]) == in_each([1, 2, 3])


def test_rows_are_kept_in_each_part() -> None:
    cache = empty()
    passed(cache, [1, 2])
    cache.keep([0, 1])
    passed(cache, [3, 4, 5])
    cache.keep([2, 4])
    assert cache.length == 4
    assert passed(cache, [6]) == in_each([1, 2, 3, 5, 6])


def test_a_grown_cache_holds_the_rows_of_each_part() -> None:
    cache = empty()
    passed(cache, [1, 2])
    cache.reserve(2 * CAPACITY)
    assert cache.capacity == 2 * CAPACITY
    assert passed(cache, list(range(3, 11))) == in_each(list(range(1, 11)))


def test_positions_are_kept_with_their_rows() -> None:
    cache = empty()
    cache.positions = torch.arange(CAPACITY)
    passed(cache, [1, 2, 3, 4])
    cache.positions[2:4] = 1
    cache.keep([0, 3])
    assert cache.positions[:2].tolist() == [0, 1]
    cache.reserve(8)
    assert cache.positions[4:].tolist() == [4, 5, 6, 7]


def test_keys_and_values_of_one_shape_in_all_layers_share_one_tensor() -> None:
    cache = empty(layers=2)
    for layer in range(2):
        for what in (KEYS, VALUES):
            cache.append_part((what, layer), rows([1, 2], 2, 4), 1)
    cache.settle()
    assert not cache.parts
    assert cache.store.shape == (2, 2, 2, CAPACITY, 4)
    assert cache.store[1, 1, 0, :3, 0].tolist() == [1, 2, 0]


def test_a_layer_without_keys_takes_no_memory() -> None:
    cache = empty(layers=2)
    for what in (KEYS, VALUES):
        cache.append_part((what, 0), rows([1], 2, 4), 1)
    cache.settle()
    assert cache.nbytes == 2 * CAPACITY * 2 * 4 * torch.float32.itemsize


def test_a_part_that_the_first_pass_lacked_is_refused() -> None:
    cache = empty()
    passed(cache, [1])
    with pytest.raises(ValueError, match="layer 1 has keys that it did not have in the first pass"):
        cache.append_part((KEYS, 1), rows([2], 1, 3), 1)

"""A module's own cache, batched and then shortened, equals that of the shorter text; the original is unchanged."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, MistralConfig

from decoder.forward.whole_paths import in_batch, keeps_all, nbytes, one_of, record, shortened

WINDOW = 4
ROWS = torch.randn(3, 2, 16, 8, generator=torch.Generator().manual_seed(1))
"""Keys of three texts whose first 12 tokens are equal."""
ROWS[:, :, :12] = ROWS[0, :, :12].clone()


def begun(window: int | None) -> DynamicCache:
    """A cache of the first 12 tokens."""
    cache = DynamicCache(config=MistralConfig(num_hidden_layers=1, sliding_window=window, max_position_embeddings=64))
    cache.update(ROWS[:1, :, :12], ROWS[:1, :, :12], 0)
    record(cache)
    assert shortened(cache, 0)
    return cache


def seen_next(cache: Any) -> Tensor:
    """Keys that one further token attends to."""
    keys, _ = cache.update(torch.zeros(1, 2, 1, 8), torch.zeros(1, 2, 1, 8), 0)
    seen: Tensor = keys
    return seen


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize(("number", "count"), [(0, 0), (1, 0), (2, 1), (1, 4)])
def test_a_copy_of_one_text_without_its_last_tokens(number: int, count: int, window: int | None) -> None:
    cache = begun(window)
    batch = in_batch(cache, 3)
    batch.update(ROWS[:, :, 12:], ROWS[:, :, 12:], 0)
    one = one_of(batch, number)
    assert shortened(one, count)
    right = ROWS[number : number + 1, :, : 16 - count]
    assert torch.equal(seen_next(one)[:, :, :-1], right if window is None else right[:, :, 1 - window :])
    assert torch.equal(seen_next(cache)[:, :, :-1], ROWS[:1, :, (0 if window is None else 13 - window) : 12])


def test_only_a_cache_without_windows_can_be_shortened_to_any_length() -> None:
    assert keeps_all(begun(None))
    assert not keeps_all(begun(WINDOW))


def test_states_are_copied_and_cannot_be_shortened() -> None:
    states = [torch.ones(1, 4), torch.zeros(1, 4)]
    batch = in_batch(states, 2)
    batch[0][1] += 1
    assert [state.shape[0] for state in batch] == [2, 2]
    assert torch.equal(one_of(batch, 1)[0], torch.full((1, 4), 2.0))
    assert torch.equal(states[0], torch.ones(1, 4))
    assert shortened(states, 0)
    assert not shortened(states, 1)
    assert nbytes(states) == 2 * 4 * 4

"""Chunk sizes of scans: at most the length of a tree's paths during a pass, and the usual size after it."""

import sys
from typing import Any

import pytest
import torch

from decoder.forward.recurrent.forward import RecurrentForward
from decoder.forward.recurrent.owners import FIELD, at_most
from tests.decoder.any_family import CONTEXT, PROMPT
from tests.decoder.fixed_tree import FORK, FORKED, PLACES
from tests.decoder.recurrent_families import target_of

SCANS = {
    "qwen3_next": "torch_chunk_gated_delta_rule",
    "kimi_linear": "chunk_kimi_delta_attention",
    "mamba2": "mamba2_chunk_scan",
}


def sizes_of_chunks(module: Any, scan: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each later scan of a module adds its chunk size."""
    home, sizes = sys.modules[type(module).__module__], list[int]()
    right = getattr(home, scan)

    def noted(*given: Any, **named: Any) -> Any:
        sizes.append(named[FIELD])
        return right(*given, **named)

    monkeypatch.setattr(home, scan, noted)
    return sizes


@torch.inference_mode()
@pytest.mark.parametrize("family", SCANS)
def test_a_scan_of_a_path_is_not_padded(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = target_of(family, **({"chunk_size": 16} if family == "mamba2" else {}))
    form = RecurrentForward(module)
    cache = form.new_cache(CONTEXT)
    form.read(cache, PROMPT)
    assert not form.stepwise  # determined by additional passes, which must not be counted below
    sizes = sizes_of_chunks(module, SCANS[family], monkeypatch)
    form.forward(cache, FORKED, PLACES, FORK)
    assert set(sizes) == {3}
    sizes.clear()
    cache.keep([20, 21])
    assert set(sizes) == {2}
    sizes.clear()
    form.read(cache, PROMPT[:15])
    assert set(sizes) == {15}


@pytest.mark.parametrize(("family", "size"), [("qwen3_next", 64), ("kimi_linear", 64), ("mamba2", 4), ("bamba", 4)])
def test_the_usual_size_is_known(family: str, size: int) -> None:
    chunks = RecurrentForward(target_of(family)).chunks
    assert {each.size for each in chunks} == {size}


@pytest.mark.parametrize("family", ["lfm2", "mamba", "minimax"])
def test_a_module_without_chunks_has_none(family: str) -> None:
    assert not RecurrentForward(target_of(family)).chunks


def test_the_usual_size_comes_back() -> None:
    (first, *_) = chunks = RecurrentForward(target_of("mamba2")).chunks
    module: Any = first.module
    with at_most(2, chunks):
        assert module.chunk_size == 2
    assert module.chunk_size == 4


def test_chunks_are_not_made_longer() -> None:
    (first, *_) = chunks = RecurrentForward(target_of("mamba2")).chunks
    module: Any = first.module
    with at_most(5, chunks):
        assert module.chunk_size == 4

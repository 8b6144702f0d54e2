"""Passes with attention sinks and a window: each row has its own window, independent of other rows of the pass."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder.forward.hf import ModuleForward, frequencies_of
from decoder.forward.kv_cache import KvCache
from decoder.forward.language_model import LanguageModel
from decoder.forward.streaming import SLACK, KeyRotation, RollingCache, Streaming, key_rotation
from tests import tiny
from tests.decoder.forward import streaming_reference
from tests.decoder.makers import TinyModels

SINKS, WINDOW = 3, 20
TEXT = [(7 * place * place + 3) % tiny.VOCABULARY for place in range(150)]
MODELS = ["neox", "llama", "qwen3"]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, tiny_models: TinyModels) -> tuple[LanguageModel, Callable[..., Tensor]]:
    """A model with sinks and window, and a function for the reference's logits after every token of a text."""
    pair = tiny_models.pair(request.param)
    streaming = tiny_models.loaded(pair, "float32").pair.target.streaming(SINKS, WINDOW)
    plain = tiny_models.plain(pair.target, "float64")
    return streaming, partial(streaming_reference.logits, plain, sinks=SINKS, window=WINDOW)


def near(found: Tensor, right: Tensor) -> bool:
    return bool((found.double() - right).abs().max() < 1e-3 * right.abs().max())


@pytest.mark.parametrize("rows", [1, 6, 20])
@torch.inference_mode()
def test_each_row_of_a_pass_has_a_window_of_its_own(
    model: tuple[LanguageModel, Callable[..., Tensor]], rows: int
) -> None:
    streaming, reference = model
    cache, found = streaming.new_cache(len(TEXT)), []
    for start in range(0, len(TEXT), rows):
        places = range(start, min(start + rows, len(TEXT)))
        visible = np.tri(len(places), dtype=np.bool_)
        found.append(streaming.forward(cache, TEXT[start : places.stop], places, visible))
        cache.keep(places)
    assert near(torch.cat(found), reference(tokens=TEXT))
    assert cache.length == len(TEXT)
    assert cache.rows < SINKS + WINDOW + SLACK


@torch.inference_mode()
def test_nodes_of_a_tree_see_their_own_paths(model: tuple[LanguageModel, Callable[..., Tensor]]) -> None:
    streaming, reference = model
    cache = streaming.new_cache(len(TEXT))
    streaming.read(cache, TEXT)
    paths = [[5], [9], [5, 6], [9, 4], [9, 4, 8]]
    visible = np.array([[other == path[: len(other)] for other in paths] for path in paths])
    positions = [len(TEXT) + len(path) - 1 for path in paths]
    found = streaming.forward(cache, [path[-1] for path in paths], positions, visible)
    right = torch.stack([reference(tokens=[*TEXT, *path])[-1] for path in paths])
    assert near(found, right)
    cache.keep([len(TEXT) + node for node in (1, 3, 4)])
    assert near(streaming.read(cache, [2]), reference(tokens=[*TEXT, *paths[-1], 2])[-1])


@torch.inference_mode()
def test_a_path_that_is_longer_than_the_window_is_refused(tiny_models: TinyModels) -> None:
    streaming = tiny_models.loaded(tiny_models.pair("neox"), "float32").pair.target.streaming(SINKS, WINDOW)
    rows = WINDOW + 1
    with pytest.raises(ValueError, match="21 rows on a path exceed the window of 20"):
        streaming.forward(streaming.new_cache(rows), [1] * rows, range(rows), np.tri(rows, dtype=np.bool_))


@pytest.mark.parametrize(
    ("name", "dtype", "apart"), [("llama", "float64", 1), ("llama", "float32", 4), ("qwen3", "float32", 8)]
)
def test_how_keys_turn_is_found_by_trial(tiny_models: TinyModels, name: str, dtype: str, apart: int) -> None:
    pair = tiny_models.pair(name)
    model, module = tiny_models.loaded(pair, dtype).pair.target, tiny_models.plain(pair.target, dtype)
    frequencies = frequencies_of(module)
    assert frequencies is not None
    native, by_module = (
        key_rotation(form, frequencies, 192, torch.float32) for form in (model.runs_by, ModuleForward(module))
    )
    assert native is not None
    assert by_module is not None
    assert (native.second.start - native.first.start, by_module.first.step) == (apart, None)
    assert key_rotation(model.runs_by, frequencies * 1.1, 192, torch.float32) is None


@pytest.mark.parametrize("name", ["neox", "llama", "qwen3"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_it_is_found_in_every_dtype(tiny_models: TinyModels, name: str, dtype: str) -> None:
    target = tiny_models.loaded(tiny_models.pair(name), dtype).pair.target
    by_module = LanguageModel.of_module(target.hf.module, "tiny")
    by_module.run_by_module()
    for model in (target, by_module):
        assert isinstance(model.streaming(SINKS, WINDOW).runs_by, Streaming)


def test_a_turn_of_keys_is_that_of_their_distance() -> None:
    turn = KeyRotation(torch.tensor([0.5]), slice(0, 1), slice(1, 2))
    keys = torch.tensor([[[[1.0, 0.0, 7.0]]]])
    once, thrice = turn(keys, [1, 3])[0, 0]
    assert once.tolist() == pytest.approx([np.cos(0.5), np.sin(0.5), 7.0])
    assert thrice.tolist() == pytest.approx([np.cos(1.5), np.sin(1.5), 7.0])


def numbered(rows: int) -> Tensor:
    """Keys and values of rows; all values of a row are its number."""
    return torch.arange(rows).float().expand(1, 2, 1, rows)[..., None].clone()


def test_rows_are_let_go_of_behind_the_sinks_and_keep_their_numbers() -> None:
    cache = RollingCache(numbered(80), sinks=2, window=5)
    cache.used = 71
    cache.keep(range(71))
    assert (cache.length, cache.rows, cache.gone) == (71, 7, 64)
    assert cache.store[0, 0, 0, :7, 0].tolist() == [0, 1, 66, 67, 68, 69, 70]
    cache.used += 2
    cache.keep([72])
    assert (cache.length, cache.rows) == (72, 8)


def test_dropped_rows_close_up() -> None:
    cache = KvCache(numbered(8))
    cache.length, cache.used = 4, 7
    cache.drop(1, 2)
    assert (cache.length, cache.used) == (2, 5)
    assert cache.store[0, 0, 0, :5, 0].tolist() == [0, 3, 4, 5, 6]
    cache.drop(3, 1)
    assert (cache.length, cache.used) == (2, 4)

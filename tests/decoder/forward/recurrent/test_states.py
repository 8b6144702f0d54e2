"""Recurrent states: accepted rows enter them once, rejected rows never; features that do not support them refuse."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder.errors import ConfigError, PairError
from decoder.forward.language_model import LanguageModel
from decoder.forward.recurrent.states import StateCache
from decoder.forward.static.hf import ModuleStatic
from decoder.run import decoding_path
from tests.decoder.any_family import CONTEXT, PROMPT
from tests.decoder.fixed_tree import FORK, FORKED, PLACES
from tests.decoder.recurrent_families import config_of, target_of
from tests.decoder.tensor_parallel.started_ranks import require_spreadable


@pytest.fixture(params=["lfm2", "mamba2", "qwen3_5_text"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return LanguageModel.of_module(target_of(request.param), request.param)


@torch.inference_mode()
def begun(model: LanguageModel) -> StateCache:
    cache = model.new_cache(CONTEXT)
    model.read(cache, PROMPT)
    assert isinstance(cache, StateCache)
    return cache


@torch.inference_mode()
def after(model: LanguageModel, text: list[int]) -> dict[Any, Tensor]:
    """States after a text that is read in one pass."""
    cache = model.new_cache(CONTEXT)
    model.read(cache, text)
    assert isinstance(cache, StateCache)
    return cache.states


def same(one: dict[Any, Tensor], other: dict[Any, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.allclose(one[key], other[key], atol=1e-4) for key in one)


@torch.inference_mode()
def test_drafted_rows_do_not_enter_the_states(model: LanguageModel) -> None:
    cache = begun(model)
    model.forward(cache, FORKED, PLACES, FORK)
    assert same(cache.states, after(model, PROMPT))
    cache.keep([])
    assert same(cache.states, after(model, PROMPT))


@torch.inference_mode()
def test_a_single_drafted_row_does_not_enter_the_states(model: LanguageModel) -> None:
    """Some modules update states in place if they are given a single token."""
    cache = begun(model)
    model.forward(cache, [5], [20], np.ones((1, 1), dtype=np.bool_))
    assert same(cache.states, after(model, PROMPT))


@torch.inference_mode()
@pytest.mark.parametrize("path", [[0], [0, 1], [0, 2], [0, 1, 3]])
def test_an_accepted_path_enters_the_states(model: LanguageModel, path: list[int]) -> None:
    """Paths end at an inner node, at a leaf whose path is padded, or at the deepest leaf."""
    cache = begun(model)
    model.forward(cache, FORKED, PLACES, FORK)
    cache.keep([20 + node for node in path])
    assert same(cache.states, after(model, [*PROMPT, *(FORKED[node] for node in path)]))


def test_states_cannot_go_back(model: LanguageModel) -> None:
    cache = begun(model)
    with pytest.raises(PairError, match="cannot read tokens again"):
        cache.cut(19)
    cache.cut(20)
    assert cache.length == 20


def test_a_cache_counts_the_bytes_of_its_states(model: LanguageModel) -> None:
    cache = begun(model)
    assert cache.nbytes >= sum(state.nbytes for state in cache.states.values()) > 0


def test_what_needs_rows_refuses_states(model: LanguageModel) -> None:
    with pytest.raises(PairError, match=r"keeps states.*leave out --exact"):
        model.exact()
    with pytest.raises(PairError, match=r"keeps states.*leave out streaming"):
        model.streaming(2, 8)
    with pytest.raises(PairError, match="layers with states need the host"):
        ModuleStatic(model.hf.module)
    with pytest.raises(ConfigError, match=r"keeps states.*start one process"):
        require_spreadable(config_of("qwen3_next"))


def test_rounds_on_a_device_with_graphs_are_expected_to_be_the_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_path, "has_graphs", lambda _: True)
    configs = {"target": config_of("lfm2"), "draft": config_of("lfm2")}
    path = decoding_path.expected_path(configs, torch.device("cuda"), exact=False)
    assert path.name == decoding_path.HOST
    assert "layers with states" in path.reason

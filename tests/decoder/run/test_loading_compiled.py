"""Compilation of passes: only on request, only for the pair that decodes, and only where rounds run on the device."""

import json
from pathlib import Path

import pytest
import torch

from decoder import load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.models.pair import Pair
from decoder.run import loading
from decoder.session.cuda_graph import compiled, self_test
from dynatui.lab.bench import shapes
from tests.decoder.makers import TinyModels, graph_slots

SHAPE = {
    "model_type": "gpt_neox",
    "vocab_size": 288,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}


@pytest.fixture
def contests(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """Pairs passed to the compiler; patches let the device of the test count as supported."""
    found: list[Pair] = []
    monkeypatch.setattr(compiled, "compile_pair", lambda pair, *_: found.append(pair))
    monkeypatch.setattr(self_test, "prepare_rounds", lambda *_: None)
    monkeypatch.setattr(loading, "require_compilable", lambda *_, **__: None)
    monkeypatch.setattr(shapes, "require_compilable", lambda *_, **__: None)
    monkeypatch.setattr(loading, "has_graphs", lambda _: True)
    return found


def load(tiny_models: TinyModels, *, compiled: bool = True, exact: bool = False, device: str = "cpu") -> Engine:
    pair = tiny_models.pair("neox")
    return load_pair(str(pair.target), str(pair.draft), device=device, dtype="float32", compiled=compiled, exact=exact)


def with_random_draft(
    tiny_models: TinyModels, *, compiled: bool = True, exact: bool = False, device: str = "cpu"
) -> Engine:
    pair = tiny_models.pair("neox")
    return shapes.loaded_pair(
        str(pair.target), str(pair.draft), device=device, dtype="float32", compiled=compiled, exact=exact
    )


def of_a_shape(tmp_path: Path, *, compiled: bool = True, exact: bool = False, device: str = "cpu") -> Engine:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SHAPE), encoding="utf-8")
    return shapes.random_pair(str(path), str(path), device=device, dtype="float32", compiled=compiled, exact=exact)


def test_the_passes_of_the_pair_that_was_loaded_are_compiled(tiny_models: TinyModels, contests: list[Pair]) -> None:
    engine = load(tiny_models)
    assert len(contests) == 1
    assert contests[0] is engine.pair


def test_the_passes_of_a_random_draft_are_compiled_and_not_those_of_the_one_that_it_replaces(
    tiny_models: TinyModels, contests: list[Pair]
) -> None:
    engine = with_random_draft(tiny_models)
    assert len(contests) == 1
    assert contests[0] is engine.pair
    assert engine.pair.draft_model.name.endswith("(random head)")


def test_the_passes_of_random_weights_are_compiled(tmp_path: Path, contests: list[Pair]) -> None:
    engine = of_a_shape(tmp_path)
    assert len(contests) == 1
    assert contests[0] is engine.pair


def test_nothing_is_compiled_unasked(tiny_models: TinyModels, tmp_path: Path, contests: list[Pair]) -> None:
    load(tiny_models, compiled=False)
    with_random_draft(tiny_models, compiled=False)
    of_a_shape(tmp_path, compiled=False)
    assert not contests


def test_where_rounds_do_not_run_on_the_device_there_is_nothing_to_compile(
    tiny_models: TinyModels, contests: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_test, "prepare_rounds", lambda *_: "it waits for the host")
    pairs = load(tiny_models), with_random_draft(tiny_models)
    assert [graph_slots(pair).refused for pair in pairs] == ["it waits for the host"] * 2
    assert not contests


@pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("auto", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"))],
)
def test_a_cpu_is_refused_before_anything_is_read(
    tiny_models: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(loading, "load_config", lambda _: pytest.fail("this may be a download"))
    monkeypatch.setattr(shapes, "_random_module", lambda *_: pytest.fail("this takes minutes"))
    for make in (load, with_random_draft):
        with pytest.raises(ConfigError, match="--compile is for CUDA, but the device is cpu; leave --compile out"):
            make(tiny_models, device=device)
    with pytest.raises(ConfigError, match="--compile is for CUDA, but the device is cpu; leave --compile out"):
        of_a_shape(tmp_path, device=device)


def test_exact_passes_are_refused(tiny_models: TinyModels, tmp_path: Path) -> None:
    for make in (load, with_random_draft):
        with pytest.raises(ConfigError, match="--compile has no effect beside --exact"):
            make(tiny_models, exact=True)
    with pytest.raises(ConfigError, match="--compile has no effect beside --exact"):
        of_a_shape(tmp_path, exact=True)


def test_random_weights_are_exact_where_asked(tmp_path: Path) -> None:
    assert of_a_shape(tmp_path, compiled=False, exact=True).exact

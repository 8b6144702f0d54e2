"""Compilation of passes: only on request, only for the pair that decodes, and only where rounds run on the device."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture
def makers(tiny_models: TinyModels, tmp_path: Path) -> "Makers":
    """Three ways to load a pair: as saved, with a random draft, and of random weights."""
    pair, shape = tiny_models.pair("neox"), tmp_path / "config.json"
    shape.write_text(json.dumps(SHAPE), encoding="utf-8")
    usual: dict[str, Any] = {"device": "cpu", "dtype": "float32", "compiled": True, "exact": False}

    def made(load: Callable[..., Engine], *names: Path) -> Callable[..., Engine]:
        return lambda **given: load(*map(str, names), **usual | given)

    return {
        "saved": made(load_pair, pair.target, pair.draft),
        "random draft": made(shapes.loaded_pair, pair.target, pair.draft),
        "random weights": made(shapes.random_pair, shape, shape),
    }


Makers = dict[str, Callable[..., Engine]]


@pytest.mark.parametrize("kind", ["saved", "random draft", "random weights"])
def test_the_passes_of_the_pair_that_decodes_are_compiled(makers: Makers, contests: list[Pair], kind: str) -> None:
    engine = makers[kind]()
    assert len(contests) == 1
    assert contests[0] is engine.pair
    assert engine.pair.draft_model.name.endswith("(random head)") is (kind == "random draft")


def test_nothing_is_compiled_unasked(makers: Makers, contests: list[Pair]) -> None:
    for make in makers.values():
        make(compiled=False)
    assert not contests


def test_where_rounds_do_not_run_on_the_device_there_is_nothing_to_compile(
    makers: Makers, contests: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_test, "prepare_rounds", lambda *_: "it waits for the host")
    pairs = makers["saved"](), makers["random draft"]()
    assert [graph_slots(pair).refused for pair in pairs] == ["it waits for the host"] * 2
    assert not contests


@pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("auto", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"))],
)
def test_a_cpu_is_refused_before_anything_is_read(makers: Makers, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(loading, "load_config", lambda _: pytest.fail("this may be a download"))
    monkeypatch.setattr(shapes, "_random_module", lambda *_: pytest.fail("this takes minutes"))
    for make in makers.values():
        with pytest.raises(ConfigError, match="--compile is for CUDA, but the device is cpu; leave --compile out"):
            make(device=device)


def test_exact_passes_are_refused(makers: Makers) -> None:
    for make in makers.values():
        with pytest.raises(ConfigError, match="--compile has no effect beside --exact"):
            make(exact=True)
    assert makers["random weights"](compiled=False, exact=True).exact

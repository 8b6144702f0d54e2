"""Pairs with a DFlash head are loaded, decode and are reported like pairs with an EAGLE-3 head."""

import os
from pathlib import Path

import pytest

from decoder import RunConfig, decode
from decoder.errors import ConfigError, PairError
from decoder.events import Run
from decoder.methods import METHODS
from decoder.models.drafts import is_model_free
from decoder.run.decoding_path import decoding_path
from decoder.run.loading import load_pair
from dynatui.lab.tuning.drafts import cost_ratio
from dynatui.main import main
from tests.decoder.makers import Played, TinyModels
from tests.dflash_checkpoints import LAYOUTS, name, save_head
from tests.head_files import reconfigure

WHOLE = ("hf", "alg1", "delayed", "streaming")
"""Methods that need a whole model as draft."""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)


def test_a_head_stands_in_the_draft_s_place(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "z-lab")), "float32")
    pair = engine.pair
    assert pair.draft is None
    assert pair.head is not None
    assert (pair.draft_name, pair.draft_dtype, pair.head.kind) == ("head", "float32", "DFlash head")
    assert decoding_path(engine).reason == "target: native CPU kernels; draft: DFlash head"
    assert is_model_free(str(tiny_models.pair(name("llama", "z-lab")).draft))
    (run,) = [event for event in decode(engine, "The tree", RunConfig(("ar",), 2)) if isinstance(event, Run)]
    assert run.draft == "head"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_head_has_a_dtype_of_its_own(tiny_models: TinyModels, dtype: str) -> None:
    saved = tiny_models.pair(name("neox", "DFlash2"))
    engine = load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32", draft_dtype=dtype)
    assert (engine.pair.dtype, engine.pair.draft_dtype) == ("float32", dtype)
    played = Played(list(decode(engine, "The tree grows", RunConfig(("ar", "dynatree"), 40))))
    assert played.tokens("dynatree") == played.tokens("ar")


def test_methods_that_need_a_whole_draft_are_refused_and_no_others(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "z-lab")), "float32")
    for method in WHOLE:
        with pytest.raises(ConfigError, match=f"^{method} cannot run without a draft model"):
            next(decode(engine, "The tree", RunConfig(("ar", method), 4, temperature=0.5)))
    others = tuple(method for method in METHODS if method not in WHOLE)
    played = Played(list(decode(engine, "The tree grows", RunConfig(others, 12))))
    assert {tuple(played.tokens(method)) for method in others} == {tuple(played.tokens("ar"))}


def test_what_levels_cost_is_measured_beside_the_pass(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "DeepSpec")), "float32")
    costs = engine.costs_of(engine.pair.context // 2)
    assert 0 < costs.draft.seconds(1) / costs.plain.seconds(1) < cost_ratio(engine)


def test_a_head_of_another_target_is_refused_before_that_is_loaded(tiny_models: TinyModels, tmp_path: Path) -> None:
    head, said = save_head(tmp_path / "head", LAYOUTS["z-lab"]), list[str]()
    reconfigure(head, {"vocab_size": 300})
    with pytest.raises(
        PairError, match="was made for a vocabulary of 300 tokens, but the vocabulary of target has 288"
    ):
        load_pair(str(tiny_models.pair("llama").target), str(head), device="cpu", report=said.append)
    assert not said


def test_the_command_line_refuses_what_it_does_not_know_in_one_line(
    tiny_models: TinyModels, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    head = save_head(tmp_path / "head", LAYOUTS["z-lab"])
    reconfigure(head, {"attention_sink_bias": True})
    models = ["--target", str(tiny_models.pair("llama").target), "--draft", str(head), "--device", "cpu"]
    assert main([*models, "--prompt", "a b", "--headless"]) == 3
    assert "attention_sink_bias is True" in capsys.readouterr().err.splitlines()[-1]

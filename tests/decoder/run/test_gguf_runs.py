"""GGUF files as target and as draft, also of models with recurrent states: every method writes the text of plain
llama_decode, and options that cannot apply are refused in one sentence.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder import RunConfig, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, PairError
from decoder.forward.llama_cpp.forward import LlamaCache, LlamaStateCache
from decoder.forward.near_tie import Judge
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, load_config
from decoder.models.gguf_file import gguf_words
from decoder.run import gguf_options
from decoder.run.decoding_path import decoding_path, expected_path
from decoder.run.gguf_options import require_gpu_layers
from dynatui.main import main
from tests.decoder.makers import texts_of
from tests.decoder.session.made_costs import PAYING
from tests.gguf_pair import GgufPair, GgufStates, needs_llama_cpp, plain_text

pytestmark = needs_llama_cpp
PROMPT = "It was a dark and stormy night; the rain fell in torrents"
texts = partial(texts_of, prompt=PROMPT)
METHODS = ("ar", "linear", "dynatree", "auto", "fixed", "alg1")
AR = RunConfig(("ar",))
DISTINCT = 8
"""Least number of different tokens that makes a text a useful test."""
ACCEPTED = 1.2
"""Least number of tokens per round; with fewer, hardly any drafted state would be kept."""
WITHIN = 2
"""Number of rows of a tree that the trial keeps, although a longer path was drafted."""


@pytest.fixture(scope="module")
def engine(gguf_pair: GgufPair) -> Engine:
    return load_pair(str(gguf_pair.target()), str(gguf_pair.draft()))


@pytest.fixture
def cheap_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes costs at which `auto` drafts trees; measured costs would not, since drafts are as large as targets here."""
    monkeypatch.setattr(Engine, "costs_of", lambda *_: PAYING)


# Texts


def test_every_method_writes_the_text_of_plain_llama_decode(engine: Engine) -> None:
    run, _, written = texts(engine, RunConfig(METHODS, 48))
    assert written == dict.fromkeys(METHODS, plain_text(engine, PROMPT, 48))
    assert (run.dtype, run.path, run.path_reason) == ("GGUF F32", "host", "llama.cpp, GGUF F32")


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize("architecture", ["mamba", "mamba2", "qwen3next", "falcon-h1", "rwkv7"])
def test_so_does_every_method_with_a_model_that_keeps_states(gguf_states: GgufStates, architecture: str) -> None:
    engine = load_pair(str(gguf_states.target(architecture)), str(gguf_states.draft(architecture)))
    length = 120 if architecture == "mamba2" else 40
    _, summary, written = texts(engine, RunConfig(METHODS[:4], length))
    expected = plain_text(engine, PROMPT, length)
    assert written == dict.fromkeys(METHODS[:4], expected)
    assert len(set(expected)) >= DISTINCT
    assert all((summary.methods[name].tokens_per_round or 0) > ACCEPTED for name in METHODS[1:4])


def test_the_text_is_that_of_the_safetensors_pair(engine: Engine) -> None:
    config = RunConfig(("dynatree",), 60)
    assert texts(engine, config)[2] == texts(load_pair(dtype="float32"), config)[2]


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize("architecture", ["", "mamba2", "lfm2"])
def test_sampled_texts_are_those_of_plain_decoding_with_the_same_noise(
    engine: Engine, gguf_states: GgufStates, architecture: str
) -> None:
    if architecture:
        engine = load_pair(str(gguf_states.target(architecture)), str(gguf_states.draft(architecture)))
    _, _, written = texts(engine, RunConfig(METHODS[:4], 40, temperature=0.7, seed=3))
    assert written == dict.fromkeys(METHODS[:4], written["ar"])
    assert len(set(written["ar"])) >= DISTINCT


def test_a_quantised_pair_agrees_with_itself_but_for_near_ties(gguf_pair: GgufPair) -> None:
    quantised = load_pair(str(gguf_pair.target("Q8_0")), str(gguf_pair.draft("Q8_0")))
    run, summary, _ = texts(quantised, RunConfig(("ar", "linear", "dynatree"), 48))
    assert run.arithmetic == "GGUF Q8_0"
    assert all(each.identical_to_ar or each.near_tie for name, each in summary.methods.items() if name != "ar")


def test_a_judge_tells_near_ties_from_other_tokens(gguf_pair: GgufPair) -> None:
    quantised = load_pair(str(gguf_pair.target("Q8_0")), "lookup", run=AR)
    prefix = quantised.pair.tokenizer(PROMPT).input_ids
    logits = quantised.pair.target.read(quantised.pair.target.new_cache(len(prefix)), prefix)
    best, worst = int(logits.argmax()), int(logits.argmin())
    judge = Judge(quantised.pair.target)
    assert judge(prefix, (best, best)).near_tie
    assert not judge(prefix, (best, worst)).near_tie


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize(
    ("architecture", "form"),
    [("", "draft"), ("", "target"), ("", "lookup"), ("mamba2", "draft"), ("mamba2", "target"), ("qwen3next", "lookup")],
)
def test_forms_mix(gguf_pair: GgufPair, gguf_states: GgufStates, architecture: str, form: str) -> None:
    """A draft, a target or a target alone in a file, and the other model in torch or, beside states, in a file."""
    if architecture:
        file = str(gguf_states.target(architecture))
        target, draft, other = file, file, str(gguf_pair.draft())
    else:
        target, draft, other = str(gguf_pair.target()), str(gguf_pair.draft("F16")), str(EMBEDDED_DRAFT)
    names = {"draft": (str(EMBEDDED_TARGET), draft), "target": (target, other), "lookup": (target, "lookup")}[form]
    methods = ("ar", "linear", "auto") if form == "lookup" else METHODS[:4]
    mixed = load_pair(*names, run=RunConfig(methods), dtype="float32" if form == "draft" else "auto")
    _, _, written = texts(mixed, RunConfig(methods, 30))
    assert written == dict.fromkeys(methods, written["ar"])
    assert len(set(written["ar"])) >= DISTINCT
    assert "llama.cpp" in decoding_path(mixed).reason


# What is told before and after loading


def test_the_form_is_told(gguf_pair: GgufPair, gguf_states: GgufStates) -> None:
    configs = {"target": load_config(str(gguf_pair.target("Q8_0"))), "draft": load_config(str(EMBEDDED_DRAFT))}
    expected = expected_path(configs, torch.device("cpu"), exact=False)
    assert expected.reason == "target: llama.cpp, GGUF Q8_0; draft: native CPU kernels"
    path = str(gguf_states.target("lfm2"))
    told = decoding_path(load_pair(path, "lookup", run=AR)).reason
    assert told == "llama.cpp, GGUF F32, a sequence for each draft path"
    assert gguf_words(path).endswith("computed by llama.cpp, with a sequence for each draft path")
    assert load_config(path).keeps_states


def test_a_race_is_recorded_and_replayed(
    gguf_states: GgufStates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "race.jsonl")
    models = ["--target", str(gguf_states.target("mamba2")), "--draft", str(gguf_states.draft("mamba2"))]
    asked = ["--headless", "--json", "--methods", ",".join(METHODS[:4]), "--max-new-tokens", "20", "--prompt", PROMPT]
    assert main([*models, *asked, "--record", path]) == 0
    live = capsys.readouterr().out
    assert main(["replay", path, "--json"]) == 0
    assert capsys.readouterr().out == live


# Refusals


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"exact": True}, "--exact is for models in torch"),
        ({"compiled": True}, "--compile is for models in torch"),
        ({"run": RunConfig(methods=("ar", "hf"))}, "hf needs the models in torch"),
        ({"run": RunConfig(methods=("streaming",))}, "streaming needs the models in torch"),
        ({"dtype": "float16"}, "--dtype has no effect on the target"),
        ({"draft_dtype": "float16"}, "--draft-dtype has no effect on the draft"),
        ({"device": "cuda"}, "--device cuda has no effect on the target"),
        ({"gpu_layers": -2}, "--gpu-layers is -2; give 0 or more"),
    ],
)
def test_what_needs_weights_in_torch_is_refused(gguf_pair: GgufPair, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_pair(str(gguf_pair.target()), str(gguf_pair.draft()), **given)


def test_layers_on_a_gpu_need_a_file_and_a_library_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """A library with or without support for GPUs."""

        gpu = False

        def supports_gpu_offload(self) -> bool:
            return self.gpu

    library, names = Library(), {"target": "a.gguf"}
    monkeypatch.setattr(gguf_options, "library", lambda: library)
    with pytest.raises(ConfigError, match="no model is a GGUF file"):
        require_gpu_layers({"target": "a"}, 3)
    with pytest.raises(ConfigError, match="computes on the CPU alone"):
        require_gpu_layers(names, 3)
    require_gpu_layers(names, 0)
    library.gpu = True
    require_gpu_layers(names, 3)


def test_an_eagle3_head_needs_a_target_in_torch(gguf_pair: GgufPair) -> None:
    names = {"target": str(gguf_pair.target()), "draft": "a-head"}
    with pytest.raises(ConfigError, match="a drafting head reads the target's layers in torch"):
        gguf_options.require_weights_of_torch(names, AR, exact=False, compiled=False, head=True)


def test_a_model_that_fails_the_trial_of_trees_is_refused(gguf_pair: GgufPair, monkeypatch: pytest.MonkeyPatch) -> None:
    true = LlamaCache.compute
    monkeypatch.setattr(LlamaCache, "compute", lambda *given: true(*given) * 1.5)
    with pytest.raises(PairError, match="computes different logits for a draft tree"):
        load_pair(str(gguf_pair.draft()), "lookup", run=AR)


def test_a_state_that_is_wrong_after_a_draft_is_refused(
    gguf_states: GgufStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = LlamaStateCache.keep

    def wrong(cache: LlamaStateCache, rows: Sequence[int]) -> None:
        keep(cache, rows)
        if len(rows) == WITHIN:
            cache._text[-1] += 1

    monkeypatch.setattr(LlamaStateCache, "keep", wrong)
    with pytest.raises(PairError, match="computes different logits for a draft tree"):
        load_pair(str(gguf_states.target("mamba2")), "lookup", run=AR)


def test_a_folder_that_is_named_like_a_file_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").mkdir()
    with pytest.raises(ConfigError, match="there is no file"):
        load_pair(str(tmp_path / "m.gguf"), "lookup")

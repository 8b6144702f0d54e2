"""GGUF files as target and as draft: every method writes the text of plain llama_decode, and options that cannot apply
are refused in one sentence.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder import RunConfig, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, PairError
from decoder.forward.near_tie import Judge
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, load_config
from decoder.run import gguf_options
from decoder.run.decoding_path import decoding_path, expected_path
from decoder.run.gguf_options import require_gpu_layers
from tests.decoder.makers import texts_of
from tests.gguf_pair import GgufPair, needs_llama_cpp, plain_text

pytestmark = needs_llama_cpp
PROMPT = "It was a dark and stormy night; the rain fell in torrents"
LENGTH = 48
texts = partial(texts_of, prompt=PROMPT)
METHODS = ("ar", "linear", "fixed", "dynatree", "auto", "alg1")


@pytest.fixture(scope="module")
def engine(gguf_pair: GgufPair) -> Engine:
    return load_pair(str(gguf_pair.target()), str(gguf_pair.draft()))


def test_every_method_writes_the_text_of_plain_llama_decode(engine: Engine) -> None:
    run, _, written = texts(engine, RunConfig(methods=METHODS, max_new_tokens=LENGTH))
    expected = plain_text(engine, PROMPT, LENGTH)
    assert all(tokens == expected for tokens in written.values())
    assert (run.dtype, run.path, run.path_reason) == ("GGUF F32", "host", "llama.cpp, GGUF F32")


def test_the_text_is_that_of_the_safetensors_pair(engine: Engine) -> None:
    config = RunConfig(methods=("dynatree",), max_new_tokens=60)
    own = texts(engine, config)[2]
    assert own == texts(load_pair(dtype="float32"), config)[2]


def test_sampled_texts_are_those_of_plain_decoding_with_the_same_noise(engine: Engine) -> None:
    _, summary, _ = texts(engine, RunConfig(methods=("ar", "dynatree"), max_new_tokens=60, temperature=0.8, seed=3))
    assert summary.methods["dynatree"].identical_to_ar


def test_a_quantised_pair_agrees_with_itself_but_for_near_ties(gguf_pair: GgufPair) -> None:
    quantised = load_pair(str(gguf_pair.target("Q8_0")), str(gguf_pair.draft("Q8_0")))
    run, summary, _ = texts(quantised, RunConfig(methods=("ar", "linear", "dynatree"), max_new_tokens=48))
    assert run.arithmetic == "GGUF Q8_0"
    assert all(each.identical_to_ar or each.near_tie for name, each in summary.methods.items() if name != "ar")


def test_a_judge_tells_near_ties_from_other_tokens(gguf_pair: GgufPair) -> None:
    quantised = load_pair(str(gguf_pair.target("Q8_0")), "lookup", run=RunConfig(methods=("ar",)))
    prefix = quantised.pair.tokenizer(PROMPT).input_ids
    logits = quantised.pair.target.read(quantised.pair.target.new_cache(len(prefix)), prefix)
    best, worst = int(logits.argmax()), int(logits.argmin())
    judge = Judge(quantised.pair.target)
    assert judge(prefix, (best, best)).near_tie
    assert not judge(prefix, (best, worst)).near_tie


@pytest.mark.parametrize("form", ["draft", "target", "lookup"])
def test_forms_mix(gguf_pair: GgufPair, form: str) -> None:
    names = {
        "draft": (str(EMBEDDED_TARGET), str(gguf_pair.draft("F16"))),
        "target": (str(gguf_pair.target()), str(EMBEDDED_DRAFT)),
        "lookup": (str(gguf_pair.target()), "lookup"),
    }[form]
    methods = ("ar", "auto") if form == "lookup" else ("ar", "auto", "dynatree")
    mixed = load_pair(*names, run=RunConfig(methods=methods), dtype="float32" if form == "draft" else "auto")
    _, summary, _ = texts(mixed, RunConfig(methods=methods, max_new_tokens=24))
    assert all(each.identical_to_ar for name, each in summary.methods.items() if name != "ar")
    assert "llama.cpp" in decoding_path(mixed).reason


def test_the_path_is_known_before_weights_are_loaded(gguf_pair: GgufPair) -> None:
    configs = {"target": load_config(str(gguf_pair.target("Q8_0"))), "draft": load_config(str(EMBEDDED_DRAFT))}
    expected = expected_path(configs, torch.device("cpu"), exact=False)
    assert expected.reason == "target: llama.cpp, GGUF Q8_0; draft: native CPU kernels"


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
        gguf_options.require_weights_of_torch(names, RunConfig(methods=("ar",)), exact=False, compiled=False, head=True)


def test_a_model_that_fails_the_trial_of_trees_is_refused(gguf_pair: GgufPair, monkeypatch: pytest.MonkeyPatch) -> None:
    from decoder.forward.llama_cpp.cache import LlamaCache  # noqa: PLC0415 - only this test patches it

    true = LlamaCache.compute
    monkeypatch.setattr(LlamaCache, "compute", lambda *given: true(*given) * 1.5)
    with pytest.raises(PairError, match="computes different logits for a draft tree"):
        load_pair(str(gguf_pair.draft()), "lookup", run=RunConfig(methods=("ar",)))


def test_a_folder_that_is_named_like_a_file_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").mkdir()
    with pytest.raises(ConfigError, match="there is no file"):
        load_pair(str(tmp_path / "m.gguf"), "lookup")

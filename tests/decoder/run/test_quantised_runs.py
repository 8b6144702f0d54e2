"""Quantised checkpoints as target and as draft: every method writes the text of transformers' `generate`.

On a CPU, weights in FP8 and MXFP4 are converted at loading, and those of Gemma stay quantised; none of these needs a
package of its own. Tests of the other methods are skipped without their packages.
"""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GenerationConfig, TorchAoConfig

from decoder import RunConfig, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, ModelError
from decoder.forward.hf import is_quantised, resized, sizes_of, source_of
from decoder.forward.near_tie import Judge
from decoder.models.checkpoints import load_config, load_model
from decoder.run.decoding_path import MODULE, NATIVE, expected_path
from dynatui.lab.bench.machine import read_bytes
from tests import tiny
from tests.decoder.any_family import config_of, greedy
from tests.decoder.makers import texts_of
from tests.decoder.tensor_parallel.started_ranks import require_spreadable
from tests.quantised import SETTINGS, describe, quantise

PROMPT, COUNT = "The tree grows where the draft is sure", 20
METHODS = ("ar", "linear", "fixed", "dynatree", "auto", "hf")
CPU = torch.device("cpu")
texts = partial(texts_of, prompt=PROMPT)
EXPERTS = {
    "hidden_size": 64, "intermediate_size": 32, "vocab_size": tiny.VOCABULARY, "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
ROUTES = {"fp8": NATIVE, "gemma": MODULE, "mxfp4": MODULE}
"""Quantisation methods that need no package of their own, each with the form in which it runs."""
PACKAGES = {
    "gptq": "gptqmodel", "awq": "gptqmodel", "compressed-tensors": "compressed_tensors", "bitsandbytes": "bitsandbytes",
    "torchao": "torchao",
}  # fmt: skip
PRECISIONS = {"fp8": "float32 (from fp8)", "gemma": "gemma 4 bit (float32)", "mxfp4": "float32 (from mxfp4)"} | {
    method: f"{name} (float32)"
    for method, name in (
        *(("gptq", "gptq 4 bit"), ("awq", "awq 4 bit"), ("compressed-tensors", "compressed-tensors 4 bit")),
        *(("bitsandbytes", "bitsandbytes 4 bit"), ("torchao", "torchao 8 bit")),
    )
}


def by_transformers(method: str) -> Any:
    """Settings with which transformers quantises weights while loading them."""
    if method == "bitsandbytes":
        return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    return TorchAoConfig(pytest.importorskip("torchao.quantization").Int8WeightOnlyConfig())


class Saved:
    """Quantised targets, each with its own draft that is not quantised."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._engines: dict[str, Engine] = {}

    def pair(self, method: str) -> tiny.TinyPair:
        home = self._home / method
        if not home.exists():
            self._make(home, method)
        return tiny.TinyPair(home / "target", home / "draft")

    def _make(self, home: Path, method: str) -> None:
        if method in PACKAGES:
            pytest.importorskip(PACKAGES[method])
        wide = {"hidden_size": 128, "intermediate_size": 128} if method in PACKAGES else {}
        config = config_of("gpt_oss", **EXPERTS) if method == "mxfp4" else tiny.FAMILIES["llama"](**wide)
        target = tiny.build(config, seed=1, spread=0.12 if wide else 0.3)
        pair = tiny.save_pair(home, target, tiny.kin(target, seed=2))
        if method in SETTINGS:
            quantise(pair.target, method)
        else:
            settings = by_transformers(method)
            AutoModelForCausalLM.from_pretrained(pair.target, quantization_config=settings).save_pretrained(pair.target)

    def loaded(self, method: str) -> Engine:
        if method not in self._engines:
            pair = self.pair(method)
            self._engines[method] = load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32")
        return self._engines[method]

    def module(self, method: str) -> Any:
        """The module as loaded by transformers alone."""
        module = AutoModelForCausalLM.from_pretrained(self.pair(method).target, dtype=torch.float32)
        module.generation_config = GenerationConfig(pad_token_id=0)
        return module.eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("quantised"))


@pytest.mark.filterwarnings("ignore")  # warnings of the packages
@pytest.mark.parametrize("method", [*ROUTES, *PACKAGES])
def test_every_method_writes_the_text_of_generate(saved: Saved, method: str) -> None:
    engine = saved.loaded(method)
    run, summary, written = texts(engine, RunConfig(METHODS, COUNT))
    right = greedy(saved.module(method), engine.pair.tokenizer(PROMPT).input_ids, COUNT)
    assert written == dict.fromkeys(METHODS, right)
    assert len(set(right)) > 3
    assert (summary.methods["dynatree"].tokens_per_round or 0) > 1.2
    assert (run.dtype, run.draft_dtype) == (PRECISIONS[method], "float32")


@pytest.mark.parametrize("method", ROUTES)
def test_a_sampled_text_is_one_and_a_quantised_draft_changes_no_token(saved: Saved, method: str) -> None:
    sampled = RunConfig(("ar", "linear", "dynatree", "auto"), COUNT, 3, temperature=0.7)
    _, _, written = texts(saved.loaded(method), sampled)
    assert written == dict.fromkeys(sampled.methods, written["ar"])
    pair = saved.pair(method)
    engine = load_pair(str(pair.draft), str(pair.target), device="cpu", dtype="float32")
    run, summary, written = texts(engine, RunConfig(("ar", "dynatree"), COUNT))
    assert written["dynatree"] == written["ar"]
    assert (summary.methods["dynatree"].tokens_per_round or 0) > 1.2
    assert (run.dtype, run.draft_dtype) == ("float32", PRECISIONS[method])


@pytest.mark.parametrize("method", ROUTES)
def test_the_route_is_told_before_weights_are_read(saved: Saved, method: str) -> None:
    path = expected_path({"target": load_config(str(saved.pair(method).target))}, CPU, exact=False)
    assert path.reason == ROUTES[method]
    assert saved.loaded(method).pair.target.runs_without_module is (ROUTES[method] == NATIVE)


def test_weights_that_stay_quantised_have_a_dtype_of_their_own_and_are_read_in_few_bytes(saved: Saved) -> None:
    """The first parameter of the module holds integers, and the next ones are scales in float32."""
    model = load_model(str(saved.pair("gemma").target), CPU, torch.bfloat16)
    assert next(model.hf.module.parameters()).dtype is torch.uint8
    assert (model.dtype, model.precision) == (torch.bfloat16, "gemma 4 bit (bfloat16)")
    assert model.read(model.new_cache(3), [1, 2, 3]).dtype is torch.bfloat16
    plain = load_model(str(saved.pair("gemma").draft), CPU, torch.float32)
    assert read_bytes(saved.loaded("gemma").pair.target) < read_bytes(plain) / 2


def test_converted_weights_are_the_numbers_of_the_file(saved: Saved) -> None:
    folder, name = saved.pair("fp8").target, "model.layers.0.mlp.up_proj.weight"
    stored = load_file(folder / "model.safetensors")
    scales = stored[f"{name}_scale_inv"].repeat_interleave(16, 0).repeat_interleave(16, 1)
    module = load_model(str(folder), CPU, torch.float32).hf.module
    assert torch.equal(module.get_parameter(name), stored[name].float() * scales)


def test_exact_passes_of_quantised_weights_agree_bit_for_bit(saved: Saved) -> None:
    pair = saved.pair("gemma")
    engine = load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="bfloat16", exact=True)
    _, _, written = texts(engine, RunConfig(("ar", "linear", "dynatree"), COUNT))
    assert written == dict.fromkeys(written, written["ar"])


@torch.inference_mode()
def test_near_ties_are_judged_by_plain_decoding(saved: Saved) -> None:
    """Loading the weights in float32 would give a different model."""
    model = load_model(str(saved.pair("gemma").target), CPU, torch.bfloat16)
    text = [int(token) for token in torch.randint(5, 90, (12,), generator=torch.Generator().manual_seed(1))]
    cache, scores = model.new_cache(len(text)), torch.empty(0)
    for token in text:
        scores = model.read(cache, [token])
    best, second = scores.topk(2).indices.tolist()
    for by_module in (False, True):
        verdict = Judge(model)(text, (best, second), by_module=by_module)
        assert verdict.gap == float(scores[best] - scores[second])
        assert not verdict.near_tie
    assert Judge(model)(text, (best, best)).near_tie


def test_a_module_of_another_size_shares_the_quantised_parts(saved: Saved) -> None:
    module = saved.module("gemma")
    assert is_quantised(module)
    twin = resized(module, "pretraining_tp", 2)
    assert twin is not None
    with torch.inference_mode():
        ids = torch.tensor([[1, 2, 3]])
        assert torch.equal(twin(ids).logits, module(ids).logits)
    assert resized(module, "num_key_value_heads", 1) is None
    assert "pretraining_tp" in sizes_of(module)


def test_linear_layers_with_quantised_weights_are_none_of_a_native_model(saved: Saved) -> None:
    """Some quantisation methods keep the class of a layer and replace only its weights."""
    module = tiny.build(tiny.FAMILIES["llama"](), seed=1)
    assert source_of(module)
    module.hf_quantizer = saved.module("gemma").hf_quantizer
    assert source_of(module) is None


@pytest.mark.parametrize("role", ["target", "draft"])
def test_what_cannot_be_loaded_is_refused_before_weights_are_read(saved: Saved, tmp_path: Path, role: str) -> None:
    whole, other = saved.pair("gemma").draft, tmp_path / "other"
    shutil.copytree(whole, other, ignore=shutil.ignore_patterns("*.safetensors"))
    describe(other, {"quant_method": "gptq", "bits": 4})
    names = {"target": str(whole), "draft": str(whole)} | {role: str(other)}
    with pytest.raises(ConfigError, match="other is quantised by 'gptq', which transformers cannot load") as refusal:
        load_pair(names["target"], names["draft"], device="cpu")
    assert refusal.value.about == (role,)


def test_scales_without_a_word_in_the_configuration_are_refused(saved: Saved, tmp_path: Path) -> None:
    """Without its quantisation settings, transformers would use the weights without their scales."""
    folder = shutil.copytree(saved.pair("fp8").target, tmp_path / "unnamed")
    describe(folder, None)
    with pytest.raises(ModelError, match="has scales of 14 weights, but its configuration does not mention"):
        load_model(str(folder), CPU, torch.float32)


def test_missing_scales_are_refused(saved: Saved, tmp_path: Path) -> None:
    folder = shutil.copytree(saved.pair("gemma").target, tmp_path / "without")
    weights: dict[str, Tensor] = load_file(folder / "model.safetensors")
    del weights["model.layers.0.mlp.up_proj.weight_scale"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights, for example .*up_proj.weight_scale; "):
        load_model(str(folder), CPU, torch.float32)


@pytest.mark.parametrize("method", ["fp8", "gemma"])
def test_processes_cannot_share_quantised_weights(saved: Saved, method: str) -> None:
    """For converted weights, every process but the first would apply the scales of the wrong rows."""
    config = load_config(str(saved.pair(method).target))
    with pytest.raises(ConfigError, match=r"has quantised weights \(.*\), which several processes cannot divide"):
        require_spreadable(config, 1)
    require_spreadable(load_config(str(saved.pair(method).draft)), 1)

"""Adapters: a model with an adapter is decoded with it, as peft computes it, or refused in one sentence."""

import copy
import shutil
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from decoder import RunConfig
from decoder.errors import ConfigError, ModelError
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import load_config, load_model, load_tokenizer
from tests import tiny
from tests.decoder.any_family import greedy
from tests.decoder.makers import TinyModels, play
from tests.decoder.tensor_parallel.started_ranks import require_spreadable
from tests.head_files import reconfigure

peft: Any = pytest.importorskip("peft", reason="peft, of the extra adapters, is not installed")
pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning",  # peft reads it
    "ignore::UserWarning",  # of peft, about adapters that these tests make on purpose
)
CPU = torch.device("cpu")
PROMPT = "The tree grows"
WEIGHTS = "adapter_model.safetensors"
QUERIES = ["q_proj", "v_proj"]
KINDS: dict[str, Any] = {
    "lora": peft.LoraConfig(r=4, lora_alpha=16, target_modules=QUERIES, init_lora_weights=False),
    "rslora": peft.LoraConfig(r=4, target_modules="all-linear", use_rslora=True, init_lora_weights=False),
    "dora": peft.LoraConfig(r=4, target_modules=QUERIES, use_dora=True, init_lora_weights=False),
    "embedding": peft.LoraConfig(r=4, target_modules=["embed_tokens", "lm_head"], init_lora_weights=False),
    "saved-head": peft.LoraConfig(
        r=4, target_modules=QUERIES, modules_to_save=["lm_head", "embed_tokens"], init_lora_weights=False
    ),
    "ia3": peft.IA3Config(
        target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], init_ia3_weights=False
    ),
    "loha": peft.LoHaConfig(r=4, target_modules=QUERIES, init_weights=False),
    "lokr": peft.LoKrConfig(r=4, target_modules=QUERIES, init_weights=False),
    "oft": peft.OFTConfig(oft_block_size=8, target_modules=["q_proj"], init_weights=False),
    "vera": peft.VeraConfig(r=4, target_modules=["q_proj"], init_weights=False),
    "norms": peft.LNTuningConfig(target_modules=["input_layernorm"]),
}


def adapted(base: Path, kind: str, folder: Path) -> tuple[Path, Any]:
    """Saves an adapter of a base model with random weights; returns its folder and the module beside its adapter."""
    torch.manual_seed(3)
    module = AutoModelForCausalLM.from_pretrained(base)
    beside = peft.get_peft_model(module, copy.deepcopy(KINDS[kind])).eval()
    for name, weight in beside.named_parameters():
        if weight.requires_grad:
            noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(name)))
            weight.data += 0.1 * noise
    beside.save_pretrained(folder)
    return folder, beside


@pytest.fixture
def llama(tiny_models: TinyModels) -> Path:
    return tiny_models.pair("llama").target


@pytest.fixture
def lora(llama: Path, tmp_path: Path) -> Path:
    """The folder of an adapter."""
    return adapted(llama, "lora", tmp_path / "adapter")[0]


def loaded(folder: Path) -> LanguageModel:
    return load_model(str(folder), CPU, torch.float32)


@torch.inference_mode()
def assert_alike(folder: Path, beside: Any) -> None:
    """The loaded model gives the logits that peft gives with the adapter beside the weights."""
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]
    model = loaded(folder)
    wanted = beside(input_ids=torch.tensor([tokens])).logits[0, -1]
    assert torch.allclose(model.read(model.new_cache(len(tokens)), tokens), wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["llama", "tied", "qwen3"])
def test_logits_are_those_of_the_adapter_beside_the_weights(
    tiny_models: TinyModels, family: str, kind: str, tmp_path: Path
) -> None:
    base = tmp_path / "tied"
    if family == "tied":  # its output head shares the weights of its embedding
        tied = tiny.build(tiny.FAMILIES["llama"](tie_word_embeddings=True), seed=1)
        tiny.save(base, tied, tiny.train_tokenizer())
    else:
        base = tiny_models.pair(family).target
    assert_alike(*adapted(base, kind, tmp_path / "adapter"))


def test_a_text_is_that_of_peft_with_adapters_of_target_and_draft(tiny_models: TinyModels, tmp_path: Path) -> None:
    pair = tiny_models.pair("llama")
    target, beside = adapted(pair.target, "lora", tmp_path / "target")
    draft, _ = adapted(pair.draft, "ia3", tmp_path / "draft")
    methods = ("ar", "dynatree", "hf")
    race = play(tiny_models.engine(tiny.TinyPair(target, draft)), RunConfig(methods=methods, max_new_tokens=24), PROMPT)
    wanted = greedy(beside, tiny_models.prompt_tokens(pair, PROMPT), 24)
    assert {method: race.tokens(method) for method in methods} == dict.fromkeys(methods, wanted)
    assert wanted != tiny_models.generate(pair, "float32", PROMPT, 24)


def test_an_adapter_beside_its_model_s_files_changes_that_model(llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama, folder)
    _, beside = adapted(llama, "lora", tmp_path / "adapter")
    for part in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(tmp_path / "adapter" / part, folder)
    _change(folder, base_model_name_or_path=None)
    assert_alike(folder, beside)


def test_native_families_keep_their_native_form(lora: Path) -> None:
    assert loaded(lora).runs_without_module


def test_an_adapter_with_further_tokens_widens_the_embedding(llama: Path, tmp_path: Path) -> None:
    module = AutoModelForCausalLM.from_pretrained(llama)
    module.resize_token_embeddings(tiny.VOCABULARY + 3, mean_resizing=False)
    beside = peft.get_peft_model(module, copy.deepcopy(KINDS["saved-head"])).eval()
    beside.save_pretrained(tmp_path)
    assert loaded(tmp_path).width == tiny.VOCABULARY + 3
    assert_alike(tmp_path, beside)


def test_an_adapter_without_a_tokenizer_has_that_of_its_base(llama: Path, lora: Path) -> None:
    assert load_tokenizer(str(lora)).get_vocab() == load_tokenizer(str(llama)).get_vocab()


def test_without_peft_a_model_with_an_adapter_is_refused(lora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec
    monkeypatch.setattr("decoder.models.adapters.find_spec", lambda name: None if name == "peft" else found(name))
    for read in (load_config, load_tokenizer):
        with pytest.raises(ModelError, match=r"has an adapter \(LORA\), which needs the package peft; pip install"):
            read(str(lora))


def test_a_plain_model_is_read_without_importing_peft(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert loaded(llama).layers == 2


def test_prompt_tuning_is_refused_as_no_change_of_weights(llama: Path, tmp_path: Path) -> None:
    module = AutoModelForCausalLM.from_pretrained(llama)
    tuned = peft.get_peft_model(module, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    tuned.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"\(PROMPT_TUNING\) changes prompts or passes, not weights"):
        loaded(tmp_path)


def _change(folder: Path, **fields: Any) -> None:
    reconfigure(folder, fields, "adapter_config.json")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"r": 7}, "cannot load the adapter .* into"),
        ({"lora_alpha": 10**400}, "cannot load the adapter"),
        ({"peft_type": 7}, r"cannot read adapter_config.json of .*Expected `str`, got `int` - at `\$.peft_type`"),
        ({"peft_type": "SORA"}, "cannot load the adapter .*SORA"),
        ({"target_modules": ["nowhere"]}, "Target modules .* not found in the base model"),
        ({"layer_replication": [[0, 2], [0, 2]]}, "adapter"),
        ({"base_model_name_or_path": None}, "says that base_model_name_or_path is None"),
        ({"base_model_name_or_path": "/nowhere/base"}, "/nowhere/base, but there is no such folder"),
        ({"megatron_config": {"a": 1}, "megatron_core": "os"}, "names a module to import"),
    ],
)
def test_a_fault_of_an_adapter_s_configuration_is_named(lora: Path, fields: dict[str, Any], reason: str) -> None:
    _change(lora, **fields)
    with pytest.raises(ModelError, match=reason):
        loaded(lora)


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "adapter_model.bin")
    (folder / WEIGHTS).unlink()


def without_first(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    save_file({key: weight for key, weight in weights.items() if key != min(weights)}, folder / WEIGHTS)


def with_unknown(folder: Path) -> None:
    unknown = {"base_model.model.model.layers.7.lora_A.weight": torch.ones(1)}
    save_file(load_file(folder / WEIGHTS) | unknown, folder / WEIGHTS)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (without_first, "lacks 1 weights, for example"),
        (with_unknown, "has 1 unknown weights, for example"),
        (pickled, "has no adapter_model.safetensors, and pickled weights are not opened"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"x" * 100), "cannot read the weights of the adapter"),
        (lambda folder: (folder / WEIGHTS).unlink(), "has no adapter_model.safetensors"),
    ],
)
def test_a_fault_of_an_adapter_s_weights_is_named(lora: Path, fault: Callable[[Path], Any], reason: str) -> None:
    fault(lora)
    with pytest.raises(ModelError, match=reason):
        loaded(lora)


def test_a_merge_that_changes_the_logits_is_refused(lora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peft.tuners.lora.layer.Linear.get_delta_weight", lambda _self, _name: torch.zeros(()))
    with pytest.raises(ModelError, match="computes other logits once it is merged"):
        loaded(lora)


def test_a_tensor_parallel_target_with_an_adapter_is_refused(lora: Path) -> None:
    with pytest.raises(ConfigError, match="has an adapter, which each process would merge into its own part"):
        require_spreadable(tiny.FAMILIES["llama"](), name=str(lora))

"""Checkpoints read without transformers are bit for bit those of transformers, which reads all others."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from decoder.errors import DeviceError
from decoder.forward import hf_module
from decoder.forward.families.architecture import Architecture
from decoder.forward.language_model import LanguageModel
from decoder.models import checkpoints
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, known_traits, load_model
from decoder.models.known_checkpoint import known_architecture, known_ends, known_weights
from tests.decoder.family_models import COMPILED, LLAMA3, MODELS, SCALED, laid_out_anew, made
from tests.decoder.makers import TinyModels
from tests.decoder.models.hub_cache import cached

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def silent(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Saves checkpoints of the native families with transformers, once per family."""
    home, saved = tmp_path_factory.mktemp("families"), dict[str, Path]()

    def folder(name: str) -> Path:
        if name not in saved:
            saved[name] = home / str(len(saved))
            made(name).save_pretrained(saved[name])
        return saved[name]

    return folder


def known(folder: Path, dtype: torch.dtype = torch.float32) -> LanguageModel:
    traits = known_traits(str(folder), CPU, dtype, silent)
    assert traits is not None
    return LanguageModel.of_weights(traits, "known")


def logits(model: LanguageModel) -> Tensor:
    """Logits of a text's last token and of a tree after it, shape (6, V)."""
    cache, visible = model.new_cache(12), np.tri(5, dtype=np.bool_)
    visible[4, 3] = False
    text = model.read(cache, [3, 1, 4, 1, 5, 9, 2])
    tree = model.forward(cache, [6, 5, 3, 5, 8], [7, 8, 9, 10, 10], visible)
    return torch.cat((text[None], tree))


@pytest.mark.parametrize(
    ("name", "dtype"),
    # In float64, modules compute the families of `COMPILED`.
    [(name, dtype) for name in MODELS | COMPILED for dtype in DTYPES if name in MODELS or dtype is not torch.float64],
)
@torch.inference_mode()
def test_logits_have_the_bits_of_a_model_that_was_read_from_its_module(
    folders: Callable[[str], Path], name: str, dtype: torch.dtype
) -> None:
    module = laid_out_anew(AutoModelForCausalLM.from_pretrained(folders(name), dtype=dtype).eval())
    assert torch.equal(logits(known(folders(name), dtype)), logits(LanguageModel.of_module(module, "module")))


@pytest.mark.parametrize("folder", [EMBEDDED_TARGET, EMBEDDED_DRAFT], ids=["target", "draft"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.inference_mode()
def test_the_embedded_pair_is_read_to_the_last_bit(folder: Path, dtype: torch.dtype) -> None:
    module = laid_out_anew(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval())
    assert torch.equal(logits(known(folder, dtype)), logits(LanguageModel.of_module(module, "module")))


@pytest.mark.parametrize("name", ["neox", "llama without groups, tied"])
@torch.inference_mode()
def test_weights_in_several_files_are_read_as_those_in_one(
    folders: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    made(name).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert torch.equal(logits(known(tmp_path)), logits(known(folders(name))))


def test_what_a_model_tells_is_what_its_module_tells(folders: Callable[[str], Path]) -> None:
    model = load_model(str(folders("llama 3")), CPU, torch.bfloat16)
    module = LanguageModel.of_module(model.hf.module, "module")
    for name in ("layers", "width", "context", "device", "dtype", "eos"):
        assert getattr(model, name) == getattr(module, name)
    shapes = {weight: tensor.shape for weight, tensor in model.hf.module.named_parameters()}
    model.slim()
    assert {weight: tensor.shape for weight, tensor in model.hf.skeleton.named_parameters()} == shapes


def test_no_module_is_made_before_somebody_asks_for_it(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    right, asked = checkpoints._hf, list[object]()
    monkeypatch.setattr(hf_module, "_hf", lambda: pytest.fail("nobody asks"))
    monkeypatch.setattr(checkpoints, "_hf", lambda: (asked.append(None), right())[1])  # type: ignore[func-returns-value]
    model = load_model(str(folders("neox")), CPU, torch.float32)
    assert (model.hf.loaded, model.runs_without_module, asked) == (None, True, [])
    assert model.hf.module is model.hf.loaded
    assert len(asked) == 1


# Configurations


def written(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return found


def changed(folder: Path, home: Path, **changes: Any) -> Path:
    """A copy of a checkpoint with changed fields in its configuration; `...` removes a field."""
    copied = shutil.copytree(folder, home / "changed")
    config = {name: value for name, value in (written(folder) | changes).items() if value is not ...}
    (copied / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return copied


def told(folder: Path) -> Architecture:
    """Transformers' reading of a configuration, without the deprecated name `type` of the rotary embeddings' kind."""
    found = Architecture.of(AutoConfig.from_pretrained(folder))
    return replace(
        found, rope_parameters={key: found.rope_parameters[key] for key in found.rope_parameters if key != "type"}
    )


WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MODELS | COMPILED},
    "positions as they were written before": ("llama", {"rope_parameters": ..., "rope_theta": 5e5}),
    "scaled as it was written before": (
        "llama", {"rope_parameters": ..., "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    ),
    "scaled by both names": (
        "mistral", {"rope_parameters": ..., "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 4}}
    ),
    "llama 3 as it was written before": ("llama", {"rope_parameters": ..., "rope_theta": 5e5, "rope_scaling": LLAMA3}),
    "positions that are not told": ("llama", {"rope_parameters": ...}),
    "positions that are told to be none": ("qwen2", {"rope_parameters": None}),
    "neox as it was written before": ("neox", {"rope_parameters": ..., "rotary_pct": 0.5, "rotary_emb_base": 5000}),
    "neox, positions that are not told": ("neox", {"rope_parameters": ...}),
    "neox, scaled": ("neox", {"rope_parameters": SCALED}),
    "neox without flags": (
        "neox", {"use_parallel_residual": ..., "attention_bias": ..., "tie_word_embeddings": ..., "is_decoder": ...}
    ),
    "llama without flags": (
        "llama", {"attention_bias": ..., "mlp_bias": ..., "tie_word_embeddings": ..., "head_dim": ...}
    ),
    "llama, a key for each query": ("llama without groups, tied", {"num_key_value_heads": ...}),
    "the dtype's old name": ("llama", {"dtype": ..., "torch_dtype": "bfloat16"}),
    "both names of the dtype": ("llama", {"dtype": "float16", "torch_dtype": "bfloat16"}),
    "no dtype": ("llama", {"dtype": ...}),
    "the layers of qwen2": ("qwen2", {"layer_types": ["full_attention"] * 2}),
    "a window of qwen2 that is off": ("qwen2", {"sliding_window": 8, "max_window_layers": 1}),
    "a window in later layers": (
        "qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "layer_types": ...}
    ),
    "windows where no number of layers is told": (
        "qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": ..., "layer_types": ...}
    ),
    "a window that is on and has no size": ("qwen2", {"use_sliding_window": True, "layer_types": ...}),
    "layers with a window in another order": (
        "qwen2, windows in half of its layers", {"layer_types": ["sliding_attention", "full_attention"]}
    ),
    "a window that is not told": ("mistral", {"sliding_window": ..., "max_position_embeddings": 8192}),
    "a window as long as the context": ("mistral", {"sliding_window": 192}),
    "a window longer than the context, in some layers": (
        "qwen2, windows in half of its layers", {"sliding_window": 4096}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_a_configuration_means_what_it_means_to_transformers(
    folders: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    of, changes = WRITTEN[name]
    folder = changed(folders(of), tmp_path, **changes)
    assert known_architecture(str(folder)) == told(folder)


STRANGE: dict[str, tuple[str, dict[str, Any]]] = {
    "a field of no known name": ("llama", {"logit_scale": 2.0}),
    "a quantised model": ("llama", {"quantization_config": {"bits": 4}}),
    "code of its own": ("llama", {"auto_map": {"AutoConfig": "x.Y"}}),
    "another head": ("llama", {"architectures": ["LlamaForSequenceClassification"]}),
    "another family": ("llama", {"model_type": "gemma"}),
    "no type of model": ("llama", {"model_type": ...}),
    "a type that is no word": ("llama", {"model_type": ["llama"]}),
    "another activation": ("neox", {"hidden_act": "relu"}),
    "an odd width": ("neox", {"intermediate_size": 63}),
    "an odd head": ("llama", {"head_dim": 9}),
    "heads that do not divide the width": ("neox", {"num_attention_heads": 5}),
    "heads that keys do not divide": ("llama", {"num_key_value_heads": 3}),
    "a word for a number": ("llama", {"num_attention_heads": "two"}),
    "a flag for a number": ("llama", {"num_attention_heads": True}),
    "a number with a point": ("llama", {"vocab_size": 288.0}),
    "no size": ("llama", {"vocab_size": ...}),
    "no activation": ("llama", {"hidden_act": ...}),
    "no length": ("neox", {"max_position_embeddings": ...}),
    "a sliding window of no tokens": ("mistral", {"sliding_window": 0}),
    "a sliding window that is a flag": ("mistral", {"sliding_window": True}),
    "types of layers where none are known": ("mistral", {"layer_types": ["full_attention"] * 2}),
    "layers with a window of no size": ("qwen2", {"layer_types": ["sliding_attention", "full_attention"]}),
    "layers in chunks": ("qwen2", {"layer_types": ["chunked_attention", "full_attention"]}),
    "no types of layers": ("qwen2", {"layer_types": []}),
    "more kinds of layers than layers": ("qwen2", {"layer_types": ["full_attention"] * 3}),
    "positions that depend on the length": (
        "llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
    ),
    "positions of no known kind": ("llama", {"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}),
    "positions with another number": ("llama", {"rope_parameters": SCALED | {"attention_factor": 2.0}}),
    "positions without their number": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}),
    "positions that are no table": ("llama", {"rope_parameters": 7}),
    "positions of two kinds": ("llama", {"rope_parameters": {**SCALED, "type": "default"}}),
    "positions that are written twice": ("llama", {"rope_theta": 5e5}),
    "a part of a head where all is rotated": ("llama", {"rope_parameters": {**SCALED, "partial_rotary_factor": 0.5}}),
    "a token beyond the vocabulary": ("llama", {"pad_token_id": 288}),
    "a word for a token": ("llama", {"eos_token_id": "x"}),
    "a decoder of an encoder": ("llama", {"is_encoder_decoder": True}),
    "layers in several parts": ("llama", {"pretraining_tp": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_whatever_is_not_understood_is_left_to_transformers(
    folders: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    of, changes = STRANGE[name]
    assert known_architecture(str(folders(of))) is not None
    assert known_architecture(str(changed(folders(of), tmp_path, **changes))) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "7", '"llama"', "[" * 100_000], ids=lambda text: text[:9])
def test_a_configuration_that_is_none_is_left_to_transformers(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    assert known_architecture(str(tmp_path)) is None


def test_a_folder_with_an_adapter_is_left_to_transformers(folders: Callable[[str], Path], tmp_path: Path) -> None:
    folder = changed(folders("llama"), tmp_path)
    (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
    assert known_architecture(str(folder)) is None


def test_a_model_that_is_not_understood_runs_through_transformers_all_the_same(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = changed(folders("llama"), tmp_path, my_own_note="hello")
    model = load_model(str(folder), CPU, torch.float32)
    assert model.hf.loaded is not None
    # Weights in a mapped file and in memory have other addresses, and sums then run in another order.
    torch.testing.assert_close(logits(model), logits(known(folders("llama"))), rtol=1e-4, atol=1e-4)


# The end of a text


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({"eos_token_id": 7}, 5),
        ({"eos_token_id": [7, 9], "do_sample": True, "temperature": 0.6, "top_p": 0.9}, 5),
        ({"eos_token_id": None}, 5),
        ({}, 5),
        ({"_from_model_config": True, "bos_token_id": 1}, 5),
        (None, 5),
        (None, [5, 6]),
        (None, None),
        (None, ...),
    ],
    ids=str,
)
def test_a_text_ends_as_transformers_reads_it(
    folders: Callable[[str], Path], tmp_path: Path, settings: Any, config: Any
) -> None:
    folder = changed(folders("llama"), tmp_path, eos_token_id=config)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if settings is not None:
        (folder / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    right = AutoModelForCausalLM.from_pretrained(folder).generation_config.eos_token_id
    found = known_ends(str(folder))
    assert found is not None
    assert found.eos_token_id == right


@pytest.mark.parametrize(
    "content", ["[1]", "{", "null", '{"eos_token_id": "x"}', '{"my_own": 1}', '{"max_new_tokens": -1}'], ids=str
)
def test_settings_that_are_not_understood_are_left_to_transformers(
    folders: Callable[[str], Path], tmp_path: Path, content: str
) -> None:
    folder = changed(folders("llama"), tmp_path)
    (folder / "generation_config.json").write_text(content, encoding="utf-8")
    assert known_ends(str(folder)) is None
    assert known_traits(str(folder), CPU, torch.float32, silent) is None


def test_a_module_that_is_asked_for_before_its_pair_is_made_has_its_own_settings(tiny_models: TinyModels) -> None:
    pair = tiny_models.ending("neox", eos_token_id=7, repetition_penalty=1.5)
    model = load_model(str(pair.target), CPU, torch.float32)
    assert isinstance(model.hf.generation, GenerationConfig)
    assert model.hf.generation.repetition_penalty == 1.5
    model.hf.end_with(7, pad=7)
    assert model.hf.module.generation_config is model.hf.generation
    assert (model.hf.generation.eos_token_id, model.hf.generation.repetition_penalty) != (7, 1.5)


# Weights


def weights_of(folder: Path) -> Any:
    look = known_architecture(str(folder))
    assert look is not None
    return known_weights(str(folder), look, torch.float32, CPU, silent)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _resaved(change: Callable[[dict[str, Tensor]], object], metadata: dict[str, str] | None = None) -> Any:
    def resave(path: Path) -> None:
        weights = load_file(path)
        change(weights)
        save_file(weights, path, metadata=metadata or {"format": "pt"})

    return resave


NAME = "model.layers.1.mlp.up_proj.weight"
FAULTS: dict[str, Callable[[Path], None]] = {
    "a file that broke off": _cut,
    "an empty file": _empty,
    "no file": Path.unlink,
    "a weight less": _resaved(lambda weights: weights.pop(NAME)),
    "a weight more": _resaved(lambda weights: weights.update({"model.layers.2.mlp.up_proj.weight": torch.ones(2)})),
    "a weight of another size": _resaved(lambda weights: weights.update({NAME: torch.ones(2)})),
    "a weight of whole numbers": _resaved(lambda weights: weights.update({NAME: weights[NAME].to(torch.int8)})),
    "weights of another library": _resaved(lambda _: None, {"format": "mlx"}),
    "names without their model": _resaved(lambda weights: weights.update({"up_proj": weights.pop(NAME)})),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_weights_that_are_not_as_the_configuration_says_are_left_to_transformers(
    folders: Callable[[str], Path], tmp_path: Path, fault: str
) -> None:
    folder = changed(folders("llama"), tmp_path)
    assert weights_of(folder) is not None
    FAULTS[fault](folder / "model.safetensors")
    assert weights_of(folder) is None


@pytest.mark.parametrize("content", ["{}", "[]", '{"weight_map": 7}', '{"weight_map": {"a": "../b"}}'], ids=str)
def test_an_index_that_is_not_understood_is_left_to_transformers(
    folders: Callable[[str], Path], tmp_path: Path, content: str
) -> None:
    folder = changed(folders("llama"), tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(content, encoding="utf-8")
    assert weights_of(folder) is None


def test_a_part_that_is_missing_is_left_to_transformers(tmp_path: Path) -> None:
    made("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    assert weights_of(tmp_path) is not None
    next(tmp_path.glob("*.safetensors")).unlink()
    assert weights_of(tmp_path) is None


def test_a_tied_head_with_weights_of_its_own_is_left_to_transformers(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = changed(folders("llama without groups, tied"), tmp_path)
    assert weights_of(folder) is not None
    _resaved(lambda weights: weights.update({"lm_head.weight": torch.ones(288, 32)}))(folder / "model.safetensors")
    assert weights_of(folder) is None


@pytest.mark.parametrize(
    ("name", "unused"),
    [
        ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        ("neox", "gpt_neox.layers.1.attention.bias"),
        ("neox", "gpt_neox.layers.1.attention.masked_bias"),
    ],
)
@torch.inference_mode()
def test_what_older_checkpoints_hold_beside_their_weights_is_not_read(
    folders: Callable[[str], Path], tmp_path: Path, name: str, unused: str
) -> None:
    folder = changed(folders(name), tmp_path)
    _resaved(lambda weights: weights.update({unused: torch.ones(4)}))(folder / "model.safetensors")
    assert torch.equal(logits(known(folder)), logits(known(folders(name))))
    AutoModelForCausalLM.from_pretrained(folder)


def test_weights_stay_as_they_were_read_when_their_file_is_written_over(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = changed(folders("llama"), tmp_path)
    weight = weights_of(folder)[NAME]
    before, path = weight.clone(), folder / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(-path.stat().st_size // 2, 2)
        file.write(bytes(path.stat().st_size // 2))
    assert torch.equal(weight, before)


# On a device


def test_what_does_not_fit_in_a_device_s_memory_is_told_in_one_line(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(LanguageModel, "of_weights", full)
    with pytest.raises(DeviceError, match="does not fit in the memory of cpu; choose a smaller model or dtype"):
        load_model(str(folders("neox")), CPU, torch.float32)


def test_a_checkpoint_of_the_hub_is_found_in_its_cache(
    folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    cached(tmp_path, "owner/model", folders("llama"))
    monkeypatch.setattr(checkpoints, "_hf", lambda: SimpleNamespace())
    model = load_model("owner/model", CPU, torch.float32)
    assert (model.name, model.hf.loaded) == ("owner/model", None)
    assert torch.equal(logits(model), logits(known(folders("llama"))))

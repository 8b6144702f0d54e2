"""Checkpoints of EAGLE-3, P-EAGLE and DFlash heads: each fault is told in one line, and no pickle is opened."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from decoder.errors import ModelError, PairError
from decoder.forward.language_model import LanguageModel
from decoder.models.heads import head_shape, load_head
from tests import dflash_checkpoints, eagle3_checkpoints
from tests.dflash_checkpoints import MASK
from tests.head_files import one_line, reconfigure, rewrite

FLAT, FLASH = "flat", "z-lab"
LAYOUTS: dict[str, Any] = {**eagle3_checkpoints.LAYOUTS, **dflash_checkpoints.LAYOUTS}
BOTH = pytest.mark.parametrize("layout", [FLAT, FLASH])


@pytest.fixture(scope="module")
def llama() -> LanguageModel:
    return LanguageModel.of_module(eagle3_checkpoints.target("llama"), "the-target")


def made_by(layout: str) -> Any:
    return eagle3_checkpoints if layout in eagle3_checkpoints.LAYOUTS else dflash_checkpoints


def saved(folder: Path, layout: str) -> Path:
    found: Path = made_by(layout).save_head(folder / "head", LAYOUTS[layout])
    return found


def load(folder: Path, model: LanguageModel, dtype: torch.dtype = torch.float32) -> Any:
    shape: Any = head_shape(str(folder))
    assert shape is not None
    return load_head(str(folder), shape, model, dtype)


def own(key: str) -> str:
    return key.replace("midlayer", "layers.0")


def written(size: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, size))})"


LOST = {
    "z-lab": ["fc.weight", "hidden_norm.weight"],
    "z-lab, usual layers": ["layers.1.self_attn.v_proj.bias"],
    "DFlash2": ["layers.0.mlp_conv.base_kernel", "candidate_selector.successor_codebook"],
    "speculators": ["lm_head.weight", "d2t"],
    "speculators, DSpark": ["markov_head.gate_proj.bias"],
    "DeepSpec, rnn": ["markov_head.joint_proj.weight"],
    "TreeFlash": ["ar_approximation.ug.weight"],
    **{
        name: [key for key in eagle3_checkpoints.weights(eagle3_checkpoints.LAYOUTS[name]) if key != "t2d"]
        for name in ("flat", "nested, layers of Qwen3", "EAGLE-3.1", "EAGLE-3.1, norms one by one", "P-EAGLE, flat")
    },
}


@pytest.mark.parametrize("layout", LOST)
def test_every_weight_that_is_missing_or_of_another_shape_is_named(
    tmp_path: Path, llama: LanguageModel, layout: str
) -> None:
    broken, held = saved(tmp_path, layout), made_by(layout).weights(LAYOUTS[layout])
    for key in LOST[layout]:
        tensor = held[key]
        shape = (*tensor.shape[:-1], tensor.shape[-1] + 1)
        for wrong, said in ((None, ()), (torch.ones(shape).to(tensor.dtype), (written(shape),))):
            rewrite(broken, {key: wrong})
            with pytest.raises(ModelError) as refusal:
                load(broken, llama)
            assert one_line(refusal, own(key), written(tensor.shape), *said)
        rewrite(broken, {key: tensor})


@pytest.mark.parametrize(
    ("layout", "key"),
    [
        *((FLAT, key) for key in ("fc.bias", "layers.1.mlp.up_proj.weight", "midlayer.self_attn.q_norm.weight")),
        (FLAT, "mask_hidden"),
        *((FLASH, key) for key in ("fc.bias", "layers.2.mlp.up_proj.weight", "markov_head.markov_w1.weight")),
        (FLASH, "lilicorr.w"),
    ],
)
def test_a_weight_that_is_not_understood_is_not_passed_over(
    tmp_path: Path, llama: LanguageModel, layout: str, key: str
) -> None:
    rewrite(folder := saved(tmp_path, layout), {key: torch.ones(8)})
    with pytest.raises(ModelError) as refusal:
        load(folder, llama)
    assert one_line(refusal, own(key), "(8)", "EAGLE-3 head" if layout == FLAT else "DFlash head")


def test_all_faults_of_a_file_are_in_one_message_up_to_a_few(tmp_path: Path, llama: LanguageModel) -> None:
    folder = saved(tmp_path, FLAT)
    faults = {"fc.weight": None, "norm.weight": torch.ones(3), "extra.weight": torch.ones(2)}
    rewrite(folder, faults)
    with pytest.raises(ModelError) as refusal:
        load(folder, llama)
    assert one_line(refusal, *faults)
    rewrite(other := saved(tmp_path / "other", FLAT), {f"other.{at}.weight": torch.ones(2) for at in range(9)})
    with pytest.raises(ModelError, match="and 5 more faults") as refusal:
        load(other, llama)
    assert one_line(refusal, "other.0.weight", "other.3.weight")


@BOTH
def test_weights_in_several_files_are_read(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    folder = saved(tmp_path, layout)
    whole = load(folder, llama)
    held = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {f"model-{part}-of-2.safetensors": dict([*held.items()][part::2]) for part in range(2)}
    for name, part in parts.items():
        save_file(part, folder / name, metadata={"format": "pt"})
    places = {key: name for name, part in parts.items() for key in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    again = load(folder, llama)
    assert all(torch.equal(again.state_dict()[key], weight) for key, weight in whole.state_dict().items())
    (folder / "model-1-of-2.safetensors").unlink()
    with pytest.raises(ModelError) as refusal:
        load(folder, llama)
    assert one_line(refusal, "safetensors")


@pytest.mark.parametrize("length", [0, 4, 1000, 20_000])
def test_a_file_that_broke_off_is_named(tmp_path: Path, llama: LanguageModel, length: int) -> None:
    path = saved(tmp_path, FLAT) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelError) as refusal:
        load(path.parent, llama)
    assert one_line(refusal, "model.safetensors")


@BOTH
def test_pickled_weights_are_not_opened(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    folder = saved(tmp_path, layout)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError) as refusal:
        load(folder, llama)
    assert one_line(refusal, "pickled")


def test_a_pickled_embedding_of_the_mask_is_not_opened(tmp_path: Path, llama: LanguageModel) -> None:
    folder = saved(tmp_path, FLASH)
    torch.save(torch.ones(eagle3_checkpoints.WIDTH), folder / "mask_embedding.pt")
    with pytest.raises(ModelError) as refusal:
        load(folder, llama)
    assert one_line(refusal, "mask_embedding.pt", "pickled")


FLASH2 = {**dflash_checkpoints.configuration(LAYOUTS["DFlash2"])["dflash_config"]}
WRONG: list[tuple[str, str, dict[str, Any]]] = [
    *((layout, "hidden_size", {"hidden_size": "32"}) for layout in (FLAT, FLASH)),
    *((layout, "hidden_act", {"hidden_act": "gelu"}) for layout in (FLAT, FLASH)),
    (FLAT, "sliding_attention", {"layer_types": ["sliding_attention"]}),
    (FLAT, "model_type", {"model_type": "deepseek_v3"}),
    (FLAT, "num_hidden_layers", {"num_hidden_layers": 2}),
    (FLAT, "yarn", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
    (FLAT, "positions of an unsupported", {"rope_scaling": {"rope_type": "linear"}}),
    (FLAT, "positions of an unsupported", {"rope_scaling": {"rope_type": "linear", "type": "default", "factor": 2.0}}),
    (FLAT, "positions of an unsupported", {"rope_parameters": {"rope_type": "default"}, "rope_theta": 5e5}),
    (FLAT, "must be in ascending order", {"eagle_aux_hidden_state_layer_ids": [5, 2, 1]}),
    (FLAT, "must be in ascending order", {"eagle_aux_hidden_state_layer_ids": [2, 2, 5]}),
    (FLAT, "last layer", {"eagle_config": {"use_aux_hidden_state": False}}),
    (FLAT, "key-value heads", {"num_key_value_heads": 3}),
    (FLAT, "the mask token 288, but its vocabulary has only 288", {"mask_token_id": 288}),
    (FLAT, "lacks mask_token_id", {"speculators_model_type": "peagle"}),
    (FLAT, "lacks mask_token_id, the token", {"architectures": ["PEagleDraftModel"]}),
    (FLASH, "yarn", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}),
    (FLASH, "must be in ascending order", {"dflash_config": {"target_layer_ids": [5, 2], "mask_token_id": MASK}}),
    (FLASH, "lacks mask_token_id", {"dflash_config": {"target_layer_ids": [2, 5]}}),
    (FLASH, "layer_types", {"layer_types": ["linear_attention"] * 2}),
    (FLASH, "3 layer types", {"layer_types": ["full_attention"] * 3}),
    (FLASH, "sliding window of 0 tokens", {"layer_types": ["sliding_attention"] * 2}),
    (FLASH, "mask token 300", {"dflash_config": {"mask_token_id": 300}}),
    (FLASH, "predicts no token", {"block_size": 1}),
    (FLASH, "hidden rows of width 48", {"target_hidden_size": 48}),
    (FLASH, "attention_sink_bias is True", {"attention_sink_bias": True}),
    (FLASH, "add_swa_attention_sink_bias is True", {"add_swa_attention_sink_bias": True}),
    (FLASH, "attention_value_scale is 0.5", {"attention_value_scale": 0.5}),
    (FLASH, "is_neox_style is False", {"dflash_config": {"is_neox_style": False, "mask_token_id": MASK}}),
    (FLASH, "quantization_config is", {"quantization_config": {"quant_method": "fp8"}}),
    (FLASH, "projector_type is", {"projector_type": "domino"}),
    (FLASH, "lilicorr_rank is 4", {"lilicorr_rank": 4}),
    (FLASH, "use_xpress is True", {"use_xpress": True}),
    ("DFlash2", "groups of 5", {"dflash_config": FLASH2 | {"conv_group_size": 5}}),
    ("DFlash2", "selector_top_k", {"dflash_config": FLASH2 | {"selector_top_k": 999}}),
    ("DFlash2", "lacks selector_rank", {"dflash_config": FLASH2 | {"selector_rank": None}}),
]


@pytest.mark.parametrize(("layout", "said", "changes"), WRONG)
def test_a_configuration_that_is_not_understood_is_refused(
    tmp_path: Path, layout: str, said: str, changes: dict[str, Any]
) -> None:
    reconfigure(folder := saved(tmp_path, layout), changes)
    with pytest.raises(ModelError, match=said) as refusal:
        head_shape(str(folder))
    assert one_line(refusal)


@pytest.mark.parametrize(
    ("layout", "changes", "said"),
    [
        (FLAT, {"vocab_size": 300}, ("300", "288")),
        (FLAT, {"target_hidden_size": 48}, ("48", "32")),
        (FLAT, {"eagle_aux_hidden_state_layer_ids": [2, 4, 8]}, ("2, 4, 8", "8")),
        (FLASH, {"vocab_size": 300}, ("300", "288")),
        (FLASH, {"hidden_size": 48}, ("48", "32")),
        # It reads the output of the last layer, which no pass of the target gives to a head.
        (FLASH, {"dflash_config": {"target_layer_ids": [1, 4, 7], "mask_token_id": MASK}}, ("2, 5, 8", "8")),
    ],
    ids=str,
)
def test_a_head_of_another_target_is_refused(
    tmp_path: Path, llama: LanguageModel, layout: str, changes: dict[str, Any], said: tuple[str, ...]
) -> None:
    reconfigure(folder := saved(tmp_path, layout), changes)
    with pytest.raises(PairError) as refusal:
        load(folder, llama)
    assert one_line(refusal, "the-target", *said)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_all_weights_have_the_dtype_that_is_asked_for(
    tmp_path: Path, llama: LanguageModel, layout: str, dtype: torch.dtype
) -> None:
    head = load(saved(tmp_path, layout), llama, dtype)
    assert {weight.dtype for weight in head.parameters()} == {dtype} == {head.dtype}


@BOTH
def test_the_file_may_change_once_it_was_read(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    folder = saved(tmp_path, layout)
    head, before = load(folder, llama), made_by(layout).weights(LAYOUTS[layout])["fc.weight"]
    path = folder / "model.safetensors"
    path.write_bytes(bytes(len(path.read_bytes())))
    shutil.rmtree(folder)
    assert torch.equal(head.state_dict()["fc.weight"], before)

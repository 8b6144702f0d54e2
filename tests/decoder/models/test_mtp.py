"""MTP layers in a target's checkpoint: both layouts are read, and unsupported layers are refused in one line."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from decoder import load_pair
from decoder.errors import ConfigError, DecoderError, ModelError
from decoder.models.checkpoints import load_config
from decoder.models.mtp import load_mtp, mtp_layout
from tests.decoder.makers import TinyModels
from tests.decoder.mtp_checkpoints import AS_LAYER, FAMILIES, PREFIX, around, name, reconfigure, rewrite

Weights = dict[str, Tensor]


def loaded(folder: Path) -> Any:
    return load_pair(str(folder), "mtp", device="cpu", dtype="float32").pair.head


def one_line(refusal: pytest.ExceptionInfo[DecoderError], *said: str) -> bool:
    message = str(refusal.value)
    return "\n" not in message and all(part in message for part in said)


@pytest.fixture
def copied(tiny_models: TinyModels, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a target's folder that a test may change."""

    def copy(family: str) -> Path:
        return Path(shutil.copytree(tiny_models.pair(name(family)).target, tmp_path / family))

    return copy


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layout_is_read(tiny_models: TinyModels, family: str) -> None:
    pair = tiny_models.pair(name(family))
    head: Any = tiny_models.loaded(pair, "float32").pair.head
    stored = load_file(pair.target / "model.safetensors")
    embedding_norm, state_norm, projection, norm = (stored[key] for key in around(family))
    assert torch.equal(head.embedding_norm.weight, embedding_norm)
    assert torch.equal(head.state_norm.weight, state_norm)
    assert torch.equal(head.projection, projection)
    assert torch.equal(head.layer._module.norm.weight, norm)
    assert (head.name, head.target_layers, head.kind) == ("mtp", (2,), "MTP layer")


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_the_target_without_the_layer(tiny_models: TinyModels, family: str) -> None:
    assert len(tiny_models.loaded(tiny_models.pair(name(family)), "float32").pair.target.hf.module.model.layers) == 2


def test_a_layer_in_another_file_than_the_target_s_is_read(
    tiny_models: TinyModels, copied: Callable[[str], Path]
) -> None:
    folder = copied("qwen3_next")
    whole = loaded(folder)
    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {
        "model-1-of-2.safetensors": {key: weight for key, weight in stored.items() if not key.startswith("mtp.")},
        "model-2-of-2.safetensors": {key: weight for key, weight in stored.items() if key.startswith("mtp.")},
    }
    for file, part in parts.items():
        save_file(part, folder / file, metadata={"format": "pt"})
    places = {key: file for file, part in parts.items() for key in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    again = loaded(folder)
    assert torch.equal(again.projection, whole.projection)
    (folder / "model-2-of-2.safetensors").write_bytes(b"broken")
    target = tiny_models.loaded(tiny_models.pair(name("qwen3_next")), "float32").pair.target
    with pytest.raises(ModelError) as refusal:
        load_mtp(str(folder), target, torch.float32)
    assert one_line(refusal, "cannot read model-2-of-2.safetensors of qwen3_next")


@pytest.mark.parametrize("outer", ["qwen3_5", "qwen3_5_moe"])
def test_the_layer_of_a_checkpoint_that_reads_images_too_is_read(copied: Callable[[str], Path], outer: str) -> None:
    """As in Qwen3.5: the text model's configuration is nested, and the names of its weights have a longer prefix."""
    folder = copied(f"{outer}_text")
    plain = loaded(folder)
    config = json.loads((folder / "config.json").read_text())
    nested = {"model_type": outer, "architectures": [outer], "text_config": config, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(nested))
    rewrite(
        folder,
        lambda weights: {re.sub(r"^model\.", "model.language_model.", key): weight for key, weight in weights.items()},
    )
    own = loaded(folder)
    for one, other in zip(own.layer._module.parameters(), plain.layer._module.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("family", AS_LAYER)
def test_copies_of_the_target_s_own_weights_are_passed_over(copied: Callable[[str], Path], family: str) -> None:
    folder = copied(family)
    wrong = torch.full((288, 32), 7.0)
    rewrite(
        folder,
        lambda weights: (
            weights | {f"{PREFIX}embed_tokens.weight": wrong, f"{PREFIX}shared_head.head.weight": wrong.clone()}
        ),
    )
    head = loaded(folder)
    assert not (head.output.weight == 7).any()


def without(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {key: weight for key, weight in weights.items() if part not in key}


@pytest.mark.parametrize(
    ("family", "change", "said"),
    [
        ("glm4_moe", without(f"{PREFIX}enorm"), "enorm.weight is missing"),
        ("glm4_moe", without(f"{PREFIX}shared_head.norm"), "norm.weight is missing"),
        ("glm4_moe", without(f"{PREFIX}self_attn.q_norm"), "self_attn.q_norm.weight is missing"),
        ("deepseek_v3", without(f"{PREFIX}mlp.shared_experts.up_proj"), "shared_experts.up_proj.weight is missing"),
        ("qwen3_next", lambda weights: weights | {"mtp.layers.0.extra.weight": torch.ones(3)}, "extra.weight is unk"),
        (
            "qwen3_5_text",
            lambda weights: weights | {"mtp.layers.0.mlp.up_proj.weight": torch.ones(3, 32)},
            "another sh",
        ),
        (
            "qwen3_5_text",
            lambda weights: weights | {"mtp.fc.weight": torch.ones(32, 32)},
            "mtp.fc.weight is missing",
        ),
        ("mellum", lambda weights: weights | {"mtp.pre_fc_norm_hidden.weight": torch.ones(3)}, "norm_hidden.weight is"),
    ],
)
def test_a_layer_that_is_not_the_family_s_is_refused(
    copied: Callable[[str], Path], family: str, change: Callable[[Weights], Weights], said: str
) -> None:
    folder = copied(family)
    rewrite(folder, change)
    with pytest.raises(ConfigError) as refusal:
        loaded(folder)
    assert one_line(refusal, f"the MTP layer of {family} differs from the ", said)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("eh_proj"), "has no MTP layer in a known layout"),
        (without(PREFIX), "has no MTP layer in a known layout"),
    ],
)
def test_a_checkpoint_without_a_layer_is_refused_before_the_target_is_loaded(
    copied: Callable[[str], Path], change: Callable[[Weights], Weights], said: str
) -> None:
    folder, reported = copied("glm4_moe"), list[str]()
    rewrite(folder, change)
    with pytest.raises(ConfigError) as refusal:
        load_pair(str(folder), "mtp", device="cpu", report=reported.append)
    assert one_line(refusal, "--draft mtp needs an MTP layer", said, "name a draft model, or give --draft lookup")
    assert not reported


def test_quantised_weights_are_refused(copied: Callable[[str], Path]) -> None:
    folder = copied("glm4_moe")
    reconfigure(folder, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    with pytest.raises(ConfigError) as refusal:
        mtp_layout(str(folder), load_config(str(folder)))
    assert one_line(refusal, "needs weights that are not quantised")


@pytest.mark.parametrize("family", ["llama", "neox"])
def test_a_family_that_is_not_supported_is_refused_before_it_is_loaded(
    tiny_models: TinyModels, tmp_path: Path, family: str
) -> None:
    folder, reported = Path(shutil.copytree(tiny_models.pair(family).target, tmp_path / family)), list[str]()
    rewrite(folder, lambda weights: weights | {"mtp.fc.weight": torch.ones(32, 64)})
    with pytest.raises(ConfigError) as refusal:
        load_pair(str(folder), "mtp", device="cpu", report=reported.append)
    assert one_line(refusal, "is not supported for models of type", family)
    assert not reported


def test_a_target_whose_form_shows_no_states_is_refused(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair(name("glm4_moe"))
    target = load_pair(str(pair.target), "lookup", device="cpu", dtype="float32").pair.target
    target.run_by_paths()
    with pytest.raises(ConfigError) as refusal:
        load_mtp(str(pair.target), target, torch.float32)
    assert one_line(refusal, "but the forward pass of target gives no access to these states")

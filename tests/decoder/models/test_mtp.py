"""MTP layers in a target's checkpoint: both layouts are read, and unsupported layers are refused in one line."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from decoder import load_pair
from decoder.errors import ConfigError, ModelError
from decoder.models.checkpoints import load_config
from decoder.models.mtp import load_mtp, mtp_layout
from tests.decoder.makers import TinyModels
from tests.decoder.mtp_checkpoints import AS_LAYER, FAMILIES, PREFIX, around, name
from tests.head_files import Weights, in_two_files, reconfigure, refused, rewrite

Copied = Callable[[str], Path]


def loaded(folder: Path) -> Any:
    return load_pair(str(folder), "mtp", device="cpu", dtype="float32").pair.head


@pytest.fixture
def copied(tiny_models: TinyModels, tmp_path: Path) -> Copied:
    """A copy of a target's folder that a test may change; of a target with or without an MTP layer."""

    def copy(family: str) -> Path:
        pair = tiny_models.pair(name(family) if family in FAMILIES else family)
        return Path(shutil.copytree(pair.target, tmp_path / family))

    return copy


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layout_is_read(tiny_models: TinyModels, family: str) -> None:
    pair = tiny_models.engine(name(family)).pair
    head: Any = pair.head
    stored = load_file(tiny_models.pair(name(family)).target / "model.safetensors")
    embedding_norm, state_norm, projection, norm = (stored[key] for key in around(family))
    assert torch.equal(head.embedding_norm.weight, embedding_norm)
    assert torch.equal(head.state_norm.weight, state_norm)
    assert torch.equal(head.projection, projection)
    assert torch.equal(head.layer._module.norm.weight, norm)
    assert (head.name, head.target_layers, head.kind) == ("mtp", (2,), "MTP layer")
    assert len(pair.target.hf.module.model.layers) == 2, "transformers reads the target without the layer"


def test_a_layer_in_another_file_than_the_target_s_is_read(tiny_models: TinyModels, copied: Copied) -> None:
    folder = copied("qwen3_next")
    whole = loaded(folder)
    files = in_two_files(folder, lambda key: key.startswith("mtp."))
    assert torch.equal(loaded(folder).projection, whole.projection)
    (folder / files[1]).write_bytes(b"broken")
    target = tiny_models.engine(name("qwen3_next")).pair.target
    with refused(ModelError, "cannot read model-2-of-2.safetensors of qwen3_next"):
        load_mtp(str(folder), target, torch.float32)


@pytest.mark.parametrize("outer", ["qwen3_5", "qwen3_5_moe"])
def test_the_layer_of_a_checkpoint_that_reads_images_too_is_read(copied: Copied, outer: str) -> None:
    """As in Qwen3.5: the text model's configuration is nested, and the names of its weights have a longer prefix."""
    folder = copied(f"{outer}_text")
    plain = loaded(folder)
    config = json.loads((folder / "config.json").read_text())
    nested = {"model_type": outer, "architectures": [outer], "text_config": config, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(nested))
    longer = "model.language_model."
    rewrite(folder, lambda weights: {re.sub(r"^model\.", longer, key): each for key, each in weights.items()})
    own = loaded(folder)
    for one, other in zip(own.layer._module.parameters(), plain.layer._module.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("family", AS_LAYER)
def test_copies_of_the_target_s_own_weights_are_passed_over(copied: Copied, family: str) -> None:
    folder = copied(family)
    rewrite(
        folder, {f"{PREFIX}{key}.weight": torch.full((288, 32), 7.0) for key in ("embed_tokens", "shared_head.head")}
    )
    assert not (loaded(folder).output.weight == 7).any()


def without(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {key: weight for key, weight in weights.items() if part not in key}


@pytest.mark.parametrize(
    ("family", "change", "said"),
    [
        ("glm4_moe", without(f"{PREFIX}enorm"), "enorm.weight is missing"),
        ("glm4_moe", without(f"{PREFIX}shared_head.norm"), "norm.weight is missing"),
        ("glm4_moe", without(f"{PREFIX}self_attn.q_norm"), "self_attn.q_norm.weight is missing"),
        ("deepseek_v3", without(f"{PREFIX}mlp.shared_experts.up_proj"), "shared_experts.up_proj.weight is missing"),
        ("qwen3_next", {"mtp.layers.0.extra.weight": torch.ones(3)}, "extra.weight is unk"),
        ("qwen3_5_text", {"mtp.layers.0.mlp.up_proj.weight": torch.ones(3, 32)}, "another sh"),
        ("qwen3_5_text", {"mtp.fc.weight": torch.ones(32, 32)}, "mtp.fc.weight is missing"),
        ("mellum", {"mtp.pre_fc_norm_hidden.weight": torch.ones(3)}, "norm_hidden.weight is"),
    ],
)
def test_a_layer_that_is_not_the_family_s_is_refused(copied: Copied, family: str, change: Any, said: str) -> None:
    rewrite(folder := copied(family), change)
    with refused(ConfigError, f"the MTP layer of {family} differs from the ", said):
        loaded(folder)


NO_LAYER = "--draft mtp needs an MTP layer", "has no MTP layer in a known layout", "name a draft model, or give --draft"


@pytest.mark.parametrize(
    ("family", "change", "said"),
    [
        ("glm4_moe", without("eh_proj"), NO_LAYER),
        ("glm4_moe", without(PREFIX), NO_LAYER),
        ("llama", {"mtp.fc.weight": torch.ones(32, 64)}, ("is not supported for models of type", "llama")),
        ("neox", {"mtp.fc.weight": torch.ones(32, 64)}, ("is not supported for models of type", "neox")),
    ],
)
def test_a_checkpoint_without_a_known_layer_is_refused_before_the_target_is_loaded(
    copied: Copied, family: str, change: Any, said: tuple[str, ...]
) -> None:
    rewrite(folder := copied(family), change)
    with refused(ConfigError, *said):
        load_pair(str(folder), "mtp", device="cpu", report=lambda _: pytest.fail("it is loaded"))


def test_quantised_weights_are_refused(copied: Copied) -> None:
    folder = copied("glm4_moe")
    reconfigure(folder, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
    with refused(ConfigError, "needs weights that are not quantised"):
        mtp_layout(str(folder), load_config(str(folder)))


def test_a_target_whose_form_shows_no_states_is_refused(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair(name("glm4_moe"))
    target = load_pair(str(pair.target), "lookup", device="cpu", dtype="float32").pair.target
    target.run_by_paths()
    with refused(ConfigError, "but the forward pass of target gives no access to these states"):
        load_mtp(str(pair.target), target, torch.float32)

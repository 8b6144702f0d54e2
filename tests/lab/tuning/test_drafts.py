"""Sizes of models and heads as servers load them, and least times of their passes on a named device."""

import pytest
import torch

from decoder.errors import ConfigError
from dynatui.cli.advise import named_device
from dynatui.lab.tuning.profiling import guesses_at_once, head_size, least_costs, model_size
from dynatui.servers.profile_file import ModelSize
from tests import heads
from tests.decoder import mtp_checkpoints
from tests.decoder.makers import TinyModels

CPU = torch.device("cpu")
FLAT, PARALLEL, BLOCK = (heads.name("llama", form) for form in ("nested", "P-EAGLE", "z-lab"))
MTP = mtp_checkpoints.name("glm4_moe")
TARGET = ModelSize(name="target", pass_bytes=16e9, weights=8e9, kv_bytes_per_token=131072)


def test_a_model_has_the_bytes_of_its_weights_and_of_a_token_in_its_checkpoint_s_dtype(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("llama")
    size, module = model_size(str(pair.target), CPU), tiny_models.plain(pair.target, "float32")
    numbers = sum(weight.numel() for weight in module.parameters())
    read = numbers - module.get_input_embeddings().weight.numel()
    assert (size.dtype, size.weights_bytes, size.kv_bytes_per_token) == ("float32", 4 * numbers, 2 * 2 * 2 * 8 * 4)
    assert (size.weights, size.pass_bytes) == (read, 4 * read)


@pytest.mark.parametrize("name", [FLAT, BLOCK, MTP])
def test_a_head_has_its_file_and_the_keys_and_values_of_its_own_layers_and_an_mtp_layer_those_of_a_target_s_layer(
    tiny_models: TinyModels, name: str
) -> None:
    pair, loaded = tiny_models.pair(name), tiny_models.engine(name).pair
    head, target = loaded.head, model_size(str(pair.target), CPU)
    assert head is not None
    size = head_size("mtp" if name == MTP else str(pair.draft), head, target, loaded.target.layers)
    assert size.weights
    assert size.pass_bytes == 4 * size.weights
    assert size.weights_bytes
    if name == MTP:
        assert size.kv_bytes_per_token == (target.kv_bytes_per_token or 0) / loaded.target.layers
        assert size.weights_bytes < size.pass_bytes
    else:
        assert size.kv_bytes_per_token == (head.new_cache(7).nbytes - head.new_cache(5).nbytes) / 2  # type: ignore[attr-defined]  # both kinds have caches
        assert size.weights_bytes == sum(path.stat().st_size for path in pair.draft.glob("*.safetensors"))


@pytest.mark.parametrize(("name", "levels"), [("neox", None), (FLAT, None), (PARALLEL, 6), (MTP, None)])
def test_a_head_may_draft_several_levels_in_a_pass(tiny_models: TinyModels, name: str, levels: int | None) -> None:
    assert guesses_at_once(tiny_models.engine(name).pair) == levels


def test_a_roofline_is_the_longer_of_reading_and_arithmetic() -> None:
    costs = least_costs(named_device("1000,100"), TARGET, {"small": ModelSize(name="small", pass_bytes=1e9)}, 1000)
    read_s = (16e9 + 131072 * 1000) / 1e12
    assert costs.source == "roofline"
    assert costs.target_s[1] == pytest.approx(read_s)
    assert costs.target_s[65] == pytest.approx(max(read_s, 65 * 2 * 8e9 / 100e12))
    assert costs.draft_s == {"small": pytest.approx(1e-3)}
    with pytest.raises(ConfigError, match="leave --roofline out"):
        least_costs(named_device("H100"), ModelSize(name="target"), {}, 0)

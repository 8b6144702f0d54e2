"""Sizes of models and heads as servers load them."""

import pytest
import torch

from dynatui.lab.tuning.drafts import head_size, model_size
from tests import heads
from tests.decoder import mtp_checkpoints
from tests.decoder.makers import TinyModels

CPU = torch.device("cpu")


def test_a_model_has_the_bytes_of_its_weights_and_of_a_token_in_its_checkpoint_s_dtype(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("llama")
    size = model_size(str(pair.target), CPU)
    module = tiny_models.plain(pair.target, "float32")
    numbers = sum(weight.numel() for weight in module.parameters())
    read = numbers - module.get_input_embeddings().weight.numel()
    assert (size.dtype, size.weights_bytes) == ("float32", 4 * numbers)
    assert (size.weights, size.pass_bytes) == (read, 4 * read)
    assert size.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4


@pytest.mark.parametrize("name", [heads.name("llama", "nested"), heads.name("llama", "z-lab")])
def test_a_head_has_its_file_and_the_keys_and_values_of_its_own_layers(tiny_models: TinyModels, name: str) -> None:
    pair, engine = tiny_models.pair(name), tiny_models.engine(name)
    head = engine.pair.head
    assert head is not None
    size = head_size(str(pair.draft), head, model_size(str(pair.target), CPU), engine.pair.target.layers)
    assert size.weights_bytes == sum(path.stat().st_size for path in pair.draft.glob("*.safetensors"))
    assert size.kv_bytes_per_token == (head.new_cache(7).nbytes - head.new_cache(5).nbytes) / 2  # type: ignore[attr-defined]  # both kinds have caches
    assert size.weights
    assert size.pass_bytes == 4 * size.weights


def test_an_mtp_layer_caches_what_a_layer_of_its_target_does(tiny_models: TinyModels) -> None:
    name = mtp_checkpoints.name("glm4_moe")
    engine, target = tiny_models.engine(name), model_size(str(tiny_models.pair(name).target), CPU)
    assert engine.pair.head is not None
    size = head_size("mtp", engine.pair.head, target, engine.pair.target.layers)
    assert target.kv_bytes_per_token
    assert size.kv_bytes_per_token == target.kv_bytes_per_token / engine.pair.target.layers
    assert size.weights_bytes
    assert size.pass_bytes
    assert 0 < size.weights_bytes < size.pass_bytes

"""Quantised checkpoints: packages and hardware missing for loading, and the name of the precision."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from decoder.errors import ConfigError
from decoder.forward.families.architecture import Architecture
from decoder.models import quantisation
from decoder.models.checkpoints import EMBEDDED_TARGET, load_config
from decoder.models.quantisation import Quantisation, quantisation_of, settings_on
from tests.quantised import SETTINGS

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}}
REFUSED: dict[str, dict[str, Any]] = {
    "'gptq', which .* optimum .*pip install optimum": SETTINGS["gptq"],
    "'bitsandbytes', which .* requires bitsandbytes: .*pip install": {"load_in_4bit": True},
    "'compressed-tensors', which .* install it with .*pip install": PACKED,
    "'torchao', which .* No module named 'torchao'": {"quant_method": "torchao", "quant_type": "int8_weight_only"},
    "'spqr', which .* GPU is required": {"quant_method": "spqr"},
    "'fp8', which .* weight_block_size must be a tuple": SETTINGS["fp8"] | {"weight_block_size": [16]},
    "'modelopt', which .* Unknown quantization type": {"quant_method": "modelopt"},
    "'', which .* has no attribute|'', which .* quantization": {"bits": 4},
}


def config(settings: Any, **text: Any) -> Any:
    return SimpleNamespace(quantization_config=settings, get_text_config=lambda: SimpleNamespace(**text))


@pytest.mark.parametrize(("why", "settings"), REFUSED.items(), ids=[str(number) for number in range(len(REFUSED))])
def test_what_this_machine_cannot_load_is_refused_in_one_sentence(why: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^owner/model is quantised by {why}.*; name the unquantised model$"):
        quantisation_of("owner/model", config(settings), CPU)


def test_a_model_that_is_not_quantised_is_none_also_if_it_is_read_without_transformers() -> None:
    native = load_config(str(EMBEDDED_TARGET))
    assert isinstance(native, Architecture)
    for each in (config(None), native):
        assert quantisation_of("owner/model", each, CPU) is None


@pytest.mark.parametrize(
    ("method", "expected", "precision"),
    [
        ("fp8", Quantisation("fp8", 8, converted=True, packed=False), "bfloat16 (from fp8)"),
        ("mxfp4", Quantisation("mxfp4", 4, converted=True, packed=False), "bfloat16 (from mxfp4)"),
        ("gemma", Quantisation("gemma 4 bit", 4, converted=False, packed=True), "gemma 4 bit (bfloat16)"),
    ],
)
def test_a_cpu_has_the_weights_converted(method: str, expected: Quantisation, precision: str) -> None:
    """Those of Gemma stay as they are; a model inside another may carry the settings."""
    settings = SETTINGS[method]
    for given in (config(settings), config(None, quantization_config=settings)):
        assert quantisation_of("owner/model", given, CPU) == expected
    assert expected.precision(torch.bfloat16) == precision
    assert settings_on(config(settings), CPU) == settings | ({"dequantize": True} if expected.converted else {})


def test_a_gpu_has_them_converted_only_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for present in (False, True):
        monkeypatch.setattr("transformers.utils.import_utils.is_kernels_available", lambda present=present: present)
        assert ("dequantize" in settings_on(config(SETTINGS["fp8"]), CUDA)) is not present


@pytest.mark.parametrize(
    ("settings", "bits"),
    [
        ({"bits": 4, "group_size": 128}, 4),
        ({"w_bit": 4}, 4),
        ({"load_in_8bit": True, "load_in_4bit": False}, 8),
        ({"quant_config": {"weight_quant_params": {"nbits": 3}}}, 3),
        ({"weights": "int2", "activations": None}, 2),
        ({"weights": "float8"}, 8),
        ({"quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}}}, 4),
        ({"config_groups": {"group_0": {"weights": {"num_bits": 4}, "input_activations": {"num_bits": 8}}}}, 4),
        ({"bits": 4, "extra_config": {"lm_head": {"bits": 8}}}, None),
        ({}, None),
    ],
)
def test_the_number_of_bits_is_that_of_weights_alone(settings: dict[str, Any], bits: int | None) -> None:
    stated = set(quantisation._bits(settings))
    assert stated == {bits} if bits else len(stated) != 1

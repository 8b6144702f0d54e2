"""Quantised checkpoints: packages and hardware missing for loading, and the name of the precision."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

from decoder.errors import ConfigError
from decoder.forward.families.architecture import Architecture
from decoder.models import quantisation
from decoder.models.checkpoints import EMBEDDED_TARGET, load_config
from decoder.models.quantisation import METHODS, Quantisation, quantisation_of, settings_on
from tests.quantised import SETTINGS

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
REFUSED: dict[str, dict[str, Any]] = {
    "GPTQ, which needs the packages optimum and gptqmodel: pip install optimum gptqmodel; or name": {
        "quant_method": "gptq",
        "bits": 4,
    },
    "AWQ, which needs the package gptqmodel: pip install gptqmodel; or name": {"quant_method": "awq", "bits": 4},
    "bitsandbytes, which needs the package bitsandbytes: pip install bitsandbytes; or name": {"load_in_4bit": True},
    "compressed-tensors, which needs the package compressed-tensors: pip install": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {},
    },
    "HQQ, whose checkpoints transformers cannot load; name": {"quant_method": "hqq"},
    "torchao, which needs the package torchao: pip": {"quant_method": "torchao", "quant_type": "int8_weight_only"},
    "Quanto, whose checkpoints transformers cannot load; name": {"quant_method": "quanto", "weights": "int8"},
    "AQLM, which needs the package aqlm: pip install aqlm; or name": {"quant_method": "aqlm"},
    "AutoRound, which needs the package auto-round: pip install auto-round; or": {"quant_method": "auto-round"},
    "EETQ, which needs a CUDA GPU, but the device is cpu; name": {"quant_method": "eetq"},
    "FBGEMM FP8, which needs a CUDA GPU, but the device is cpu; name": {"quant_method": "fbgemm_fp8"},
    "SpQR, which needs a CUDA GPU, but the device is cpu; name": {"quant_method": "spqr"},
    "FP8, which transformers cannot load here: weight_block_size must be a tuple of two integers; name": {
        "quant_method": "fp8",
        "weight_block_size": [16],
    },
    "the method 'modelopt', which transformers does not support; name": {"quant_method": "modelopt"},
    "a method without a name, which transformers does not support; name": {"bits": 4},
}


def config(settings: Any, **text: Any) -> Any:
    return SimpleNamespace(quantization_config=settings, get_text_config=lambda: SimpleNamespace(**text))


def test_every_method_of_transformers_is_listed() -> None:
    known = {name.removesuffix("_4bit").removesuffix("_8bit") for name in AUTO_QUANTIZER_MAPPING}
    assert known - {"gguf"} == METHODS.keys()


@pytest.mark.parametrize(("why", "settings"), REFUSED.items(), ids=[str(number) for number in range(len(REFUSED))])
def test_what_this_machine_cannot_load_is_refused_in_one_sentence(why: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refusal:
        quantisation_of("owner/model", config(settings), CPU)
    assert str(refusal.value).startswith(f"owner/model is quantised by {why}")
    assert str(refusal.value).endswith("name the unquantised model")
    assert (refusal.value.exit_code, "\n" in str(refusal.value)) == (2, False)


def test_a_model_that_is_not_quantised_is_none() -> None:
    assert quantisation_of("owner/model", config(None), CPU) is None


def test_a_configuration_that_is_read_without_transformers_is_none() -> None:
    native = load_config(str(EMBEDDED_TARGET))
    assert isinstance(native, Architecture)
    assert quantisation_of("owner/model", native, CPU) is None


def test_a_model_inside_another_may_carry_the_settings() -> None:
    found = quantisation_of("owner/model", config(None, quantization_config=SETTINGS["fp8"]), CPU)
    assert found == Quantisation("FP8", 8, converted=True, packed=False)


@pytest.mark.parametrize("method", ["fp8", "mxfp4"])
def test_a_cpu_has_the_weights_converted(method: str) -> None:
    found = quantisation_of("owner/model", config(SETTINGS[method]), CPU)
    assert found is not None
    assert found.converted
    assert found.precision(torch.bfloat16) == f"bfloat16 (from {method.upper()})"
    assert settings_on(config(SETTINGS[method]), CPU) == {**SETTINGS[method], "dequantize": True}


def test_a_gpu_has_them_converted_only_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for present in (False, True):
        monkeypatch.setattr("transformers.utils.import_utils.is_kernels_available", lambda present=present: present)
        assert ("dequantize" in settings_on(config(SETTINGS["fp8"]), CUDA)) is not present


def test_other_weights_stay_as_they_are() -> None:
    found = quantisation_of("owner/model", config(SETTINGS["gemma"]), CPU)
    assert found == Quantisation("Gemma 4 bit", 4, converted=False, packed=True)
    assert found.precision(torch.float32) == "Gemma 4 bit (float32)"
    assert settings_on(config(SETTINGS["gemma"]), CPU) == SETTINGS["gemma"]


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
    assert stated == ({bits} if bits else stated)
    assert (len(stated) == 1) is (bits is not None)

"""Quantises the weights of a saved tiny model by hand, in the layouts of checkpoints on the Hugging Face hub."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.head_files import reconfigure

BLOCK = 16
"""Number of rows, and of columns, of a block of FP8 numbers that share a scale."""
GROUP = 32
"""Number of weights that share a scale, in MXFP4 and in the methods with 4 bit integers."""
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
"""Values of MXFP4, by code."""
INTERLEAVED = (0, 2, 4, 6, 1, 3, 5, 7)
"""Order in which AWQ packs eight numbers into a 32 bit word."""
HEAD = ["lm_head"]
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True}
SETTINGS: Mapping[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]},
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": HEAD},
    "gemma": {"quant_method": "gemma", "num_bits": 4, "quantize_embeddings": True, "modules_to_not_convert": HEAD},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
    "compressed-tensors": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "ignore": HEAD,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": INT4}},
    },
}
"""The configuration's `quantization_config`, by method."""


def fp8(part: str, weight: Tensor) -> dict[str, Tensor]:
    """A matrix as blocks of FP8 numbers, each block with a scale."""
    blocks = weight.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    scales = blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max
    numbers = (blocks / scales[:, None, :, None]).reshape(weight.shape).to(torch.float8_e4m3fn)
    return {f"{part}.weight": numbers, f"{part}.weight_scale_inv": scales}


def mxfp4(name: str, weight: Tensor) -> dict[str, Tensor]:
    """Matrices of all experts, shape (E, K, N), as 4 bit numbers in groups along K with a power of two as scale."""
    groups = weight.transpose(1, 2).unflatten(2, (-1, GROUP))
    exponents = (groups.abs().amax(3) / FP4.max()).log2().ceil()
    codes = ((groups / exponents.exp2()[..., None])[..., None] - FP4).abs().argmin(-1).to(torch.uint8)
    blocks = codes[..., ::2] | codes[..., 1::2] << 4
    return {f"{name}_blocks": blocks.contiguous(), f"{name}_scales": (exponents + 127).to(torch.uint8)}


def gemma(part: str, weight: Tensor) -> dict[str, Tensor]:
    """A matrix of 4 bit integers, two in a byte, with a scale for each row; activations are not quantised."""
    name, scale = ("embedding_quantized", "embedding_scale") if "embed" in part else ("weight", "weight_scale")
    unset = (
        {} if "embed" in part else {f"{part}.{end}_activation_scale": torch.tensor(0.0) for end in ("input", "output")}
    )
    scales = weight.abs().amax(1, keepdim=True) / 7
    codes = ((weight / scales).round() + 8).to(torch.uint8)
    return unset | {f"{part}.{name}": codes[:, ::2] | codes[:, 1::2] << 4, f"{part}.{scale}": scales}


def gptq(part: str, weight: Tensor) -> dict[str, Tensor]:
    """A matrix, shape (N, K), of 4 bit integers in groups along K, eight in a word along K."""
    codes, scales = _grouped(weight)
    return {
        f"{part}.qweight": _words(codes).t().contiguous(),
        f"{part}.qzeros": _words(torch.full_like(scales.t(), 7)),
        f"{part}.scales": scales.t().contiguous().half(),
        f"{part}.g_idx": (torch.arange(weight.shape[1]) // GROUP).int(),
    }


def awq(part: str, weight: Tensor) -> dict[str, Tensor]:
    """A matrix, shape (N, K), of 4 bit integers in groups along K, eight in a word along N."""
    codes, scales = _grouped(weight)
    return {
        f"{part}.qweight": _words(codes.t(), INTERLEAVED),
        f"{part}.qzeros": _words(torch.full_like(scales.t(), 8)),
        f"{part}.scales": scales.t().contiguous().half(),
    }


def compressed(part: str, weight: Tensor) -> dict[str, Tensor]:
    """A matrix, shape (N, K), of 4 bit integers in groups along K, eight in a word along K."""
    codes, scales = _grouped(weight)
    shape = torch.tensor(weight.shape)
    return {f"{part}.weight_packed": _words(codes), f"{part}.weight_scale": scales, f"{part}.weight_shape": shape}


def _grouped(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes from 1 to 15, shape (N, K), for the numbers -7 to 7, and the scales of their groups, shape (N, groups)."""
    groups = weight.unflatten(1, (-1, GROUP))
    scales = groups.abs().amax(2) / 7
    return ((groups / scales[..., None]).round() + 8).flatten(1), scales


def _words(codes: Tensor, order: Sequence[int] = range(8)) -> Tensor:
    """Packs each eight codes along the last axis into one 32 bit word."""
    eights = codes.long().unflatten(-1, (-1, 8))[..., list(order)]
    words: Tensor = (eights << torch.arange(0, 32, 4)).sum(-1)
    return words.int()


MATRICES: Mapping[str, Callable[[str, Tensor], dict[str, Tensor]]] = {
    "fp8": fp8,
    "gemma": gemma,
    "gptq": gptq,
    "awq": awq,
    "compressed-tensors": compressed,
}
"""Functions that quantise one matrix, by method; MXFP4 quantises only experts."""


def _quantised(method: str, name: str, weight: Tensor) -> dict[str, Tensor]:
    part, _, own = name.rpartition(".")
    if method == "mxfp4":
        return mxfp4(name, weight) if part.endswith("experts") and weight.dim() == 3 else {name: weight}
    inside = ".layers." in part or (method == "gemma" and part.endswith("embed_tokens"))
    return MATRICES[method](part, weight) if inside and own == "weight" and weight.dim() == 2 else {name: weight}


def quantise(folder: Path, method: str) -> Path:
    weights = load_file(folder / "model.safetensors")
    stored = {key: part for name, weight in weights.items() for key, part in _quantised(method, name, weight).items()}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    describe(folder, SETTINGS[method])
    return folder


def describe(folder: Path, settings: Mapping[str, Any] | None) -> None:
    """Writes `quantization_config` into a folder's config.json; None: the model is not quantised."""
    reconfigure(folder, {"quantization_config": settings})

"""Quantises the weights of a saved tiny model by hand, in the layouts that checkpoints on the hub have.

FP8 and MXFP4 are converted at loading on a CPU; Gemma's quantisation stays as it is. None needs a package of its own.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

BLOCK = 16
"""Rows and columns of a block of FP8 numbers with one scale."""
GROUP = 32
"""Numbers of MXFP4 with one scale."""
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
"""The numbers of MXFP4, by their codes."""
SETTINGS: Mapping[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]},
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    "gemma": {
        "quant_method": "gemma",
        "num_bits": 4,
        "quantize_embeddings": True,
        "modules_to_not_convert": ["lm_head"],
    },
}


def fp8(name: str, weight: Tensor) -> dict[str, Tensor]:
    """A matrix in blocks of FP8, each with a scale."""
    blocks = weight.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    scales = blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max
    numbers = (blocks / scales[:, None, :, None]).reshape(weight.shape).to(torch.float8_e4m3fn)
    return {f"{name}.weight": numbers, f"{name}.weight_scale_inv": scales}


def mxfp4(name: str, weight: Tensor) -> dict[str, Tensor]:
    """Matrices of all experts, shape (E, K, N), as 4 bit numbers in groups along K with a power of two as scale."""
    groups = weight.transpose(1, 2).unflatten(2, (-1, GROUP))
    exponents = (groups.abs().amax(3) / FP4.max()).log2().ceil()
    codes = ((groups / exponents.exp2()[..., None])[..., None] - FP4).abs().argmin(-1).to(torch.uint8)
    blocks = codes[..., ::2] | codes[..., 1::2] << 4
    return {f"{name}_blocks": blocks.contiguous(), f"{name}_scales": (exponents + 127).to(torch.uint8)}


def int4(name: str, weight: Tensor, *, scale: str) -> dict[str, Tensor]:
    """A matrix of 4 bit integers, two in a byte, with a scale for each row."""
    scales = weight.abs().amax(1, keepdim=True) / 7
    codes = ((weight / scales).round() + 8).to(torch.uint8)
    return {name: codes[:, ::2] | codes[:, 1::2] << 4, f"{name.rpartition('.')[0]}.{scale}": scales}


def _quantised(method: str, name: str, weight: Tensor) -> dict[str, Tensor]:
    part, _, own = name.rpartition(".")
    matrix = own == "weight" and weight.dim() == 2 and part != "lm_head"
    if method == "fp8" and matrix and ".layers." in part:
        return fp8(part, weight)
    if method == "mxfp4" and part.endswith("experts") and weight.dim() == 3:
        return mxfp4(name, weight)
    if method == "gemma" and matrix and part.endswith("embed_tokens"):
        return int4(f"{part}.embedding_quantized", weight, scale="embedding_scale")
    if method == "gemma" and matrix:
        unset = {f"{part}.{end}_activation_scale": torch.tensor(0.0) for end in ("input", "output")}
        return unset | int4(name, weight, scale="weight_scale")
    return {name: weight}


def quantise(folder: Path, method: str) -> Path:
    """Quantises the weights in a folder, in place."""
    weights = load_file(folder / "model.safetensors")
    stored = {key: part for name, weight in weights.items() for key, part in _quantised(method, name, weight).items()}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    describe(folder, SETTINGS[method])
    return folder


def describe(folder: Path, settings: Mapping[str, Any] | None) -> None:
    """Writes a quantisation into a configuration; None: that there is none."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": settings}))

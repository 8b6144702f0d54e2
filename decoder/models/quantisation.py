"""Quantised checkpoints in Hugging Face's layout, and the memory that a model takes, from configurations alone."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from decoder.errors import ConfigError, first_line, quoted
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import weight_bytes
from decoder.forward.layer_kinds import cache_bytes, longest_text, windows_of
from decoder.system.libraries import imported

REMEDY = "name the unquantised model"
_BITS = ("bits", "w_bit", "nbits", "num_bits")
"""Settings with the number of bits of a weight."""
_KINDS = ("weights", "quant_type", "_type", "_data")
"""Settings that may name the type of the weights, for example int8."""
_ACTIVATIONS = ("input_activations", "output_activations", "kv_cache_scheme")
"""Settings of activations or the KV cache, not of weights."""
_KIND = re.compile(r"(?:int|float)_?(\d+)", re.IGNORECASE)


BITS: Mapping[str, int] = {
    "bitnet": 2, "spqr": 3, "fouroversix": 4, "fp_quant": 4, "mxfp4": 4, "eetq": 8, "fbgemm_fp8": 8, "fp8": 8,
    "mxfp8": 8,
}  # fmt: skip
"""Number of bits of a weight, by `quant_method`; with other methods, the settings give the number."""
CONVERTS = frozenset(("fp8", "metal", "mxfp4", "mxfp8"))
"""Methods whose weights transformers can convert to the model's dtype while it loads them."""
UNPACKS = "compressed-tensors"
"""Method whose weights are replaced by larger weights in the model's dtype in the first pass."""
OWN_DTYPE = "bitsandbytes"
"""Method whose checkpoints keep weights that are not quantised in the dtype of the file."""


@dataclass(frozen=True)
class Quantisation:
    """Quantisation of a checkpoint, and the form of its weights on a device."""

    words: str
    """Method and bits for display, for example gptq 4 bit."""
    bits: int | None
    """Number of bits of a quantised weight; None if unknown, or if it differs between layers."""
    converted: bool
    """Whether the weights are converted to the model's dtype while they are loaded."""
    packed: bool
    """Whether the weights in memory are as small as those in the files."""
    dtype: torch.dtype | None = None
    """Dtype of the passes if the checkpoint determines it, regardless of the user's choice; else None."""

    def precision(self, dtype: torch.dtype) -> str:
        """Quantisation of the weights and dtype of the passes, in words."""
        name = str(dtype).removeprefix("torch.")
        return f"{name} (from {self.words})" if self.converted else f"{self.words} ({name})"


def quantisation_of(name: str, config: Any, device: torch.device) -> Quantisation | None:
    """Quantisation of a model on a device; None if its weights are not quantised.

    Raises ConfigError, with the reason that transformers gives, if this machine cannot load the weights.
    """
    settings = _settings(config)
    if settings is None:
        return None
    kind = _kind(settings)
    bits = set(_bits(settings))
    only = BITS.get(kind) or (bits.pop() if len(bits) == 1 else None)
    words = f"{kind} {only} bit" if only and kind not in BITS else kind
    converted = _converts(name, kind, settings_on(config, device), device)
    dtype = config.dtype if kind == OWN_DTYPE else None
    return Quantisation(words, only, converted, packed=not converted and kind != UNPACKS, dtype=dtype)


def settings_on(config: Any, device: torch.device) -> dict[str, Any]:
    """Settings with which transformers loads a quantised model. They request dequantisation if the device has no
    kernels for the weights: transformers checks only whether the machine has a GPU, not which device the model uses.
    """
    from transformers.utils.import_utils import is_kernels_available  # noqa: PLC0415 - see the module's docstring

    settings = _settings(config) or {}
    kernels = device.type == "cuda" and is_kernels_available()
    return settings | {"dequantize": True} if _kind(settings) in CONVERTS and not kernels else settings


def device_map(device: torch.device) -> dict[str, torch.device] | None:
    """Device map for quantised weights; None for a CPU, which several methods refuse in a device map."""
    return None if device.type == "cpu" else {"": device}


def _settings(config: Any) -> dict[str, Any] | None:
    text = config.get_text_config() if hasattr(config, "get_text_config") else None
    settings = getattr(config, "quantization_config", None) or getattr(text, "quantization_config", None)
    return settings if isinstance(settings, dict) else None


def _kind(settings: Mapping[str, Any]) -> str:
    # Older checkpoints of bitsandbytes do not name their method.
    of_bitsandbytes = settings.get("load_in_4bit") or settings.get("load_in_8bit")
    return OWN_DTYPE if of_bitsandbytes else str(settings.get("quant_method") or "")


def _bits(settings: Mapping[str, Any]) -> Iterator[int]:
    yield from (bits for bits in (4, 8) if settings.get(f"load_in_{bits}bit"))
    for name, value in settings.items():
        if name in _BITS and isinstance(value, int):
            yield value
        elif name in _KINDS and isinstance(value, str):
            yield from map(int, _KIND.findall(value))
        elif name not in _ACTIVATIONS and isinstance(value, Mapping):
            yield from _bits(value)


def _converts(name: str, kind: str, settings: dict[str, Any], device: torch.device) -> bool:
    """Whether the weights are converted while they are loaded; raises ConfigError if this machine cannot load them."""
    from transformers.quantizers.auto import AutoHfQuantizer  # noqa: PLC0415 - see the module's docstring
    from transformers.utils import logging  # noqa: PLC0415 - as above

    logging.set_verbosity_error()
    try:
        quantizer = AutoHfQuantizer.from_config(settings, pre_quantized=True)
        quantizer.validate_environment(device_map=device_map(device), weights_only=True)
    except Exception as error:  # each method checks its settings and packages in its own way, and may raise any error
        raise ConfigError(
            f"{name} is quantised by {quoted(kind)}, which transformers cannot load here: {first_line(error)}; {REMEDY}"
        ) from error
    return bool(getattr(quantizer.quantization_config, "dequantize", False))


@dataclass(frozen=True)
class Memory:
    weights_bytes: int
    token_bytes: int
    """Bytes of the keys and values of one token, in all layers."""
    context: int
    """Context length in tokens."""
    windows: tuple[int, ...] = ()
    """Attention windows that are shorter than the context, ascending."""
    ring_bytes: int = 0
    """KV cache size of a text as long as the context, if layers with windows kept only the rows in their windows."""

    @property
    def cache_bytes(self) -> int:
        """Size of the KV cache of a text as long as the context."""
        return self.token_bytes * self.context


def memory_of(config: Any, dtype: torch.dtype, quantised: Quantisation | None = None) -> Memory:
    """Memory of a model; reads no weights. The scales of weights that stay quantised are not counted."""
    form = without_weights(config, dtype, quantised)
    if isinstance(form, Architecture):
        weights = weight_bytes(form, dtype)
    else:
        width = bits_per_number(form, dtype, quantised.bits if quantised and quantised.packed else None)
        weights = sum(weight.numel() * width(weight) // 8 for weight in form.parameters())
    text = config if isinstance(config, Architecture) else config.get_text_config()
    context = longest_text(text)
    _, ring_bytes = cache_bytes(text, context, dtype.itemsize)
    token_bytes, _ = cache_bytes(text, 1, dtype.itemsize)
    windows = tuple(sorted(set(windows_of(text).sizes.values())))
    return Memory(weights, token_bytes, context, windows, ring_bytes)


def without_weights(config: Any, dtype: torch.dtype, quantised: Quantisation | None) -> Any:
    """Architecture of a model of a native family; for any other model and for weights that stay quantised, a module
    without weights.
    """
    if isinstance(config, Architecture):
        return config
    hf = imported("decoder.forward.hf")
    known = None if quantised and quantised.packed else hf.architecture_of(config)
    return known if isinstance(known, Architecture) else hf.skeleton(config, dtype)


def bits_per_number(module: Any, dtype: torch.dtype, bits: int | None) -> Callable[[Tensor], int]:
    """Returns (weight) -> number of bits of one of its numbers: the bits of `dtype` or, if `bits` is given, `bits` for
    matrices other than embedding and output head.
    """
    if bits is None:
        return lambda _: 8 * dtype.itemsize
    ends = [part.weight for part in (module.get_input_embeddings(), module.get_output_embeddings()) if part is not None]
    whole = {id(weight) for weight in (*ends, *(weight for weight in module.parameters() if weight.dim() < 2))}
    return lambda weight: 8 * dtype.itemsize if id(weight) in whole else bits

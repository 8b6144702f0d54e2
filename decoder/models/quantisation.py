"""Quantised checkpoints in Hugging Face's layout, and the memory that a model takes, from configurations alone."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import torch
from torch import Tensor

from decoder.errors import ConfigError, first_line, quoted
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import weight_bytes
from decoder.forward.layer_kinds import cache_bytes, longest_text, windows_of
from decoder.system.deferred import imported

REMEDY = "name the unquantised model"
_BITS = ("bits", "w_bit", "nbits", "num_bits")
"""Settings with the number of bits of a weight."""
_KINDS = ("weights", "quant_type", "_type", "_data")
"""Settings that may name the type of the weights, for example int8."""
_ACTIVATIONS = ("input_activations", "output_activations", "kv_cache_scheme")
"""Settings of activations or the KV cache, not of weights."""
_KIND = re.compile(r"(?:int|float)_?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Method:
    title: str
    packages: tuple[str, ...] = ()
    """pip names of the packages with which transformers loads weights of this method."""
    gpu: bool = False
    """Whether the method's kernels run only on GPUs."""
    bits: int | None = None
    """Number of bits of a weight; None if it differs between checkpoints of this method."""
    converts: bool = False
    """Whether transformers can convert the weights to the model's dtype while it loads them."""
    unpacks: bool = False
    """Whether the first pass replaces the weights by larger weights in the model's dtype."""
    own_dtype: bool = False
    """Whether weights that stay unquantised keep the dtype of the file."""
    loads: bool = True
    """Whether transformers loads such checkpoints; otherwise, it only quantises plain weights while it loads them."""


METHODS: Mapping[str, Method] = {
    "aqlm": Method("AQLM", ("aqlm", "accelerate")),
    "auto-round": Method("AutoRound", ("auto-round",)),
    "awq": Method("AWQ", ("gptqmodel", "accelerate")),
    "bitnet": Method("BitNet", ("accelerate",), bits=2),
    "bitsandbytes": Method("bitsandbytes", ("bitsandbytes", "accelerate"), own_dtype=True),
    "compressed-tensors": Method("compressed-tensors", ("compressed-tensors",), unpacks=True),
    "eetq": Method("EETQ", ("kernels", "accelerate"), gpu=True, bits=8),
    "fbgemm_fp8": Method("FBGEMM FP8", ("fbgemm-gpu", "accelerate"), gpu=True, bits=8),
    "fouroversix": Method("Four Over Six", ("fouroversix",), gpu=True, bits=4),
    "fp8": Method("FP8", ("accelerate",), bits=8, converts=True),
    "fp_quant": Method("FP-Quant", ("fp_quant",), gpu=True, bits=4),
    "gemma": Method("Gemma"),
    "gptq": Method("GPTQ", ("optimum", "gptqmodel")),
    "higgs": Method("HIGGS", ("flute-kernel", "fast_hadamard_transform", "accelerate"), gpu=True),
    "hqq": Method("HQQ", loads=False),
    "metal": Method("Metal", ("kernels",), converts=True),
    "mxfp4": Method("MXFP4", ("accelerate",), bits=4, converts=True),
    "mxfp8": Method("MXFP8", ("accelerate",), bits=8, converts=True),
    "nvfp4": Method("NVFP4", loads=False),
    "quanto": Method("Quanto", loads=False),
    "quark": Method("Quark", ("amd-quark",)),
    "sinq": Method("SINQ", ("sinq",)),
    "spqr": Method("SpQR", ("spqr_quant", "accelerate"), gpu=True, bits=3),
    "torchao": Method("torchao", ("torchao",)),
    "vptq": Method("VPTQ", ("vptq", "accelerate"), gpu=True),
}
"""Methods that transformers supports, by `quant_method`."""


@dataclass(frozen=True)
class Quantisation:
    """Quantisation of a checkpoint, and the form of its weights on a device."""

    words: str
    """Method and bits for display, for example GPTQ 4 bit."""
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

    Raises ConfigError if this machine cannot load the weights: the message names the missing package or device.
    """
    settings = _settings(config)
    if settings is None:
        return None
    kind = _kind(settings)
    method = METHODS.get(kind) or _unlisted(name, kind)
    bits = {method.bits} if method.bits else set(_bits(settings))
    only = bits.pop() if len(bits) == 1 else None
    words = f"{method.title} {only} bit" if only and not method.bits else method.title
    converted = _converts(name, method, settings_on(config, device), device)
    dtype = config.dtype if method.own_dtype else None
    return Quantisation(words, only, converted, packed=not (converted or method.unpacks), dtype=dtype)


def settings_on(config: Any, device: torch.device) -> dict[str, Any]:
    """Settings with which transformers loads a quantised model. They request dequantisation if the device has no
    kernels for the weights: transformers checks only whether the machine has a GPU, not which device the model uses.
    """
    from transformers.utils.import_utils import is_kernels_available  # noqa: PLC0415 - see the module's docstring

    settings = _settings(config) or {}
    method = METHODS.get(_kind(settings))
    kernels = device.type == "cuda" and is_kernels_available()
    return settings | {"dequantize": True} if method and method.converts and not kernels else settings


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
    return "bitsandbytes" if of_bitsandbytes else str(settings.get("quant_method") or "")


def _unlisted(name: str, kind: str) -> Method:
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING  # noqa: PLC0415 - see the module's docstring

    if kind not in AUTO_QUANTIZER_MAPPING:
        by = f"the method {quoted(kind)}" if kind else "a method without a name"
        raise ConfigError(f"{name} is quantised by {by}, which transformers does not support; {REMEDY}")
    return Method(kind)


def _bits(settings: Mapping[str, Any]) -> Iterator[int]:
    yield from (bits for bits in (4, 8) if settings.get(f"load_in_{bits}bit"))
    for name, value in settings.items():
        if name in _BITS and isinstance(value, int):
            yield value
        elif name in _KINDS and isinstance(value, str):
            yield from map(int, _KIND.findall(value))
        elif name not in _ACTIVATIONS and isinstance(value, Mapping):
            yield from _bits(value)


def _converts(name: str, method: Method, settings: dict[str, Any], device: torch.device) -> bool:
    """Whether the weights are converted while they are loaded; raises ConfigError if this machine cannot load them."""
    from transformers.quantizers.auto import AutoHfQuantizer  # noqa: PLC0415 - see the module's docstring
    from transformers.utils import logging  # noqa: PLC0415 - as above

    logging.set_verbosity_error()
    by = f"{name} is quantised by {method.title}"
    if not method.loads:
        raise ConfigError(f"{by}, whose checkpoints transformers cannot load; {REMEDY}")
    if method.gpu and device.type != "cuda":
        raise ConfigError(f"{by}, which needs a CUDA GPU, but the device is {device}; {REMEDY}")
    try:
        quantizer = AutoHfQuantizer.from_config(settings, pre_quantized=True)
        quantizer.validate_environment(device_map=device_map(device), weights_only=True)
    except Exception as error:  # each method checks its settings and packages in its own way, and may raise any error
        if missing := [package for package in method.packages if not _installed(package)]:
            plural = "s" if len(missing) > 1 else ""
            needs = f"the package{plural} {' and '.join(missing)}: pip install {' '.join(missing)}"
            raise ConfigError(f"{by}, which needs {needs}; or {REMEDY}") from error
        raise ConfigError(f"{by}, which transformers cannot load here: {first_line(error)}; {REMEDY}") from error
    return bool(getattr(quantizer.quantization_config, "dequantize", False))


def _installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


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
    hf = None if isinstance(config, Architecture) else imported("decoder.forward.hf")
    known = hf.architecture_of(config) if hf else config
    packed_bits = quantised.bits if quantised and quantised.packed else None
    if isinstance(known, Architecture) and packed_bits is None:
        weights = weight_bytes(known, dtype)
    else:
        assert hf is not None, "a quantised or unknown model needs a configuration of transformers"  # noqa: S101 - for mypy
        weights = _weights_bytes(hf.skeleton(config, dtype), dtype, packed_bits)
    text = config if isinstance(config, Architecture) else config.get_text_config()
    context = longest_text(text)
    _, ring_bytes = cache_bytes(text, context, dtype.itemsize)
    token_bytes, _ = cache_bytes(text, 1, dtype.itemsize)
    windows = tuple(sorted(set(windows_of(text).sizes.values())))
    return Memory(weights, token_bytes, context, windows, ring_bytes)


def _weights_bytes(module: Any, dtype: torch.dtype, bits: int | None) -> int:
    width = bits_per_number(module, dtype, bits)
    return sum(weight.numel() * width(weight) // 8 for weight in module.parameters())


def bits_per_number(module: Any, dtype: torch.dtype, bits: int | None) -> Callable[[Tensor], int]:
    """Returns (weight) -> number of bits of one of its numbers: the bits of `dtype` or, if `bits` is given, `bits` for
    matrices other than embedding and output head.
    """
    if bits is None:
        return lambda _: 8 * dtype.itemsize
    ends = [part.weight for part in (module.get_input_embeddings(), module.get_output_embeddings()) if part is not None]
    whole = {id(weight) for weight in (*ends, *(weight for weight in module.parameters() if weight.dim() < 2))}
    return lambda weight: 8 * dtype.itemsize if id(weight) in whole else bits

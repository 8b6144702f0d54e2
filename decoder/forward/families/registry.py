"""Forward passes at a CPU's limit, for the families that are proved equal to Hugging Face's modules.

`lean` recognises a model by what it is made of. Everything else (other families, changed layers, other devices) runs
through the Hugging Face module; nothing is guessed.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN

from decoder.forward.families.llama import read_llama
from decoder.forward.families.model import LeanModel
from decoder.forward.families.neox import GELU, read_neox
from decoder.forward.families.weights import Arithmetic

__all__ = ["LeanModel", "lean", "reader"]

FAMILIES: Mapping[str, tuple[Callable[[Any, Arithmetic], LeanModel], frozenset[str]]] = {
    "GPTNeoXForCausalLM": (read_neox, frozenset(GELU)),
    "LlamaForCausalLM": (read_llama, frozenset({"silu"})),
    "MistralForCausalLM": (read_llama, frozenset({"silu"})),
    "Qwen2ForCausalLM": (read_llama, frozenset({"silu"})),
}
"""Class to its reader and to the activations that are known."""
PARTS = frozenset({nn.ModuleList, nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout})
ROTATIONS = frozenset({"default", "linear", "llama3"})
"""Kinds of rotary positions that do not depend on the length of the text."""
DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


def lean(module: Any) -> LeanModel | None:
    """The same model for this CPU; None where only the module itself is sure to compute what it computes."""
    read = reader(module)
    weight = next(module.parameters())
    return read(Arithmetic.of(weight.dtype)) if read and weight.device.type == "cpu" else None


def reader(module: Any) -> Callable[[Arithmetic], LeanModel] | None:
    """What reads this module's weights, wherever they are; None for a module that is not known through and through."""
    read, activations = FAMILIES.get(type(module).__name__, (None, frozenset()))
    return functools.partial(read, module) if read and _known(module, activations) else None


def _known(module: Any, activations: frozenset[str]) -> bool:
    config = module.config
    weights = {(weight.device, weight.dtype) for weight in module.parameters()}
    rotation = config.rope_parameters
    return (
        config.hidden_act in activations
        # Rotations see pairs of numbers as complex ones, which must lie at even places.
        and config.intermediate_size % 2 == 0
        and config.hidden_size // config.num_attention_heads % 2 == 0
        and rotation["rope_type"] in ROTATIONS
        and not (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))
        and len(weights) == 1
        and {dtype for _, dtype in weights} <= DTYPES
        and all(_plain(part, type(module), type(ACT2FN[config.hidden_act])) for part in module.modules())
    )


def _plain(part: nn.Module, family: type, activation: type) -> bool:
    """Whether a part is as the family's own source makes it: no adapter, no quantised matrix, no hook."""
    known = type(part) in PARTS or type(part) is activation or type(part).__module__ == family.__module__
    return known and not part.training and not part._forward_hooks and not part._forward_pre_hooks  # noqa: SLF001 - only there

"""The families of which every weight and every number of the configuration is known, so that they run without modules.

Everything else (other families, changed layers) runs through Hugging Face's modules; nothing is guessed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from decoder.forward.families import llama, neox
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.model import LeanModel
from decoder.forward.families.weights import Arithmetic, Shapes, Source

ROTATIONS = frozenset({"default", "linear", "llama3"})
"""Kinds of rotary positions that do not depend on the length of the text."""
DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
HEAD = "lm_head.weight"
COPIES = 3
"""Of the largest layer in float32: while it is folded there are two, and what comes of it."""


@dataclass(frozen=True)
class Family:
    """One of them."""

    name: str
    """Of its class in transformers."""
    read: Callable[[Source, Arithmetic], LeanModel]
    outer: Callable[[Architecture], Shapes]
    """Weights beside the layers; those of tied embeddings have two names."""
    layer: Callable[[Architecture], Shapes]
    """Weights of one layer, by their names in it."""
    body: str
    """What all but the head is called."""
    embedding: str
    """What the embedding is called."""
    activations: frozenset[str]


def _of_llama(name: str) -> Family:
    return Family(
        name,
        llama.read_llama,
        llama.outer_shapes,
        llama.layer_shapes,
        body=llama.BODY,
        embedding=llama.EMBEDDING,
        activations=frozenset({"silu"}),
    )


FAMILIES: Mapping[str, Family] = {
    "gpt_neox": Family(
        "GPTNeoXForCausalLM",
        neox.read_neox,
        neox.outer_shapes,
        neox.layer_shapes,
        body=neox.BODY,
        embedding=neox.EMBEDDING,
        activations=frozenset(neox.GELU),
    ),
    "llama": _of_llama("LlamaForCausalLM"),
    "mistral": _of_llama("MistralForCausalLM"),
    "qwen2": _of_llama("Qwen2ForCausalLM"),
}
"""By the type of model that configurations name."""


def runs(look: Architecture) -> bool:
    """Whether a model of one of the families was proved to run without its module."""
    return (
        look.hidden_act in FAMILIES[look.model_type].activations
        # Rotations see pairs of numbers as complex ones, which must lie at even places.
        and look.intermediate_size % 2 == 0
        and look.hidden_size // look.num_attention_heads % 2 == 0
        and look.rope_parameters["rope_type"] in ROTATIONS
    )


def lean(source: Source, arithmetic: Arithmetic) -> LeanModel:
    """The model, read layer by layer."""
    return FAMILIES[source.architecture.model_type].read(source, arithmetic)


def shapes(look: Architecture) -> Shapes:
    """All weights; that of a head which is the embedding too has no name of its own."""
    family = FAMILIES[look.model_type]
    layer, outer = family.layer(look), dict(family.outer(look))
    if look.tie_word_embeddings:
        del outer[HEAD]
    numbers = range(look.num_hidden_layers)
    return outer | {f"{family.body}.layers.{number}.{name}": layer[name] for number in numbers for name in layer}


def weight_bytes(look: Architecture, dtype: torch.dtype) -> int:
    """Bytes of all weights."""
    return dtype.itemsize * sum(map(math.prod, shapes(look).values()))


def reading_bytes(look: Architecture, dtype: torch.dtype) -> int:
    """More than the memory that reading a model takes at any time, beside what is read and what was read."""
    layer = sum(map(math.prod, FAMILIES[look.model_type].layer(look).values()))
    largest = max(layer, look.vocab_size * look.hidden_size)
    return COPIES * largest * max(torch.float32.itemsize, dtype.itemsize)

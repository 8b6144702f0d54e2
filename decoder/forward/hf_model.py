"""What a language model needs of transformers: what a module tells of itself, its weights by name where it is of a fast
family, and the ways in which it runs.

Importing this imports transformers, which takes longer than torch; models of the fast families do without.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.activations import ACT2FN

from decoder.device import DTYPES
from decoder.forward.batch_invariant.attention import ExactModule, exact_native
from decoder.forward.context_probe import has_room
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import FAMILIES, runs
from decoder.forward.families.weights import Source
from decoder.forward.hf import ModuleForward
from decoder.forward.traits import Traits, longest_text

__all__ = ["ExactModule", "ModuleForward", "exact_native", "has_room", "settings", "skeleton", "source_of", "traits_of"]


PARTS = frozenset({nn.ModuleList, nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout})


def traits_of(module: Any) -> Traits:
    """What a module in evaluation mode tells."""
    config = module.config.get_text_config()
    weight = next(module.parameters())
    return Traits(
        layers=config.num_hidden_layers,
        width=config.vocab_size,
        context=longest_text(config),
        device=weight.device,
        dtype=weight.dtype,
        eos=module.generation_config.eos_token_id,
        skeleton=partial(skeleton, module.config, weight.dtype),
        source=source_of(module),
    )


def architecture_of(config: Any) -> Architecture | str:
    """What a module of this configuration would be known as; the name of its class where it is of no fast family."""
    module = skeleton(config, config.dtype).eval()
    source = source_of(module)
    return source.architecture if source else type(module).__name__


def skeleton(config: Any, dtype: torch.dtype) -> Any:
    """A module without weights that has the parts and shapes of a configuration."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def settings(eos: Any, pad: int | None) -> GenerationConfig:
    """What transformers' own methods go by: the tokens that end a text, and nothing else that a checkpoint brings."""
    return GenerationConfig(eos_token_id=eos, pad_token_id=pad)


def source_of(module: Any) -> Source | None:
    """A module's weights, wherever they are; None for a module that is not known through and through."""
    config, name = module.config, type(module).__name__
    if name not in (family.name for family in FAMILIES.values()) or not _plain(module):
        return None
    arch = Architecture.of(config)
    if not runs(arch) or (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)):
        return None
    weights: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return Source(arch, weights, module.base_model.rotary_emb.inv_freq)


def _plain(module: Any) -> bool:
    """Whether all parts are as the family's own source makes them, in one dtype: no adapter, no quantised matrix."""
    weights = {(weight.device, weight.dtype) for weight in module.parameters()}
    activation = type(ACT2FN[module.config.hidden_act])
    return (
        len(weights) == 1
        and {dtype for _, dtype in weights} <= set(DTYPES.values())
        and all(_known(part, type(module), activation) for part in module.modules())
    )


def _known(part: nn.Module, family: type, activation: type) -> bool:
    """Whether a part is one of these, without a hook."""
    known = type(part) in PARTS or type(part) is activation or type(part).__module__ == family.__module__
    return known and not part.training and not part._forward_hooks and not part._forward_pre_hooks  # noqa: SLF001 - only there

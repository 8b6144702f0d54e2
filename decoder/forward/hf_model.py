"""What a language model needs of transformers: what a module tells of itself, and the ways in which it runs.

Importing this imports transformers, which takes longer than torch; models of the fast families do without.
"""

from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from decoder.forward.batch_invariant.attention import ExactModule, exact_lean
from decoder.forward.context_probe import has_room
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.modules import source_of
from decoder.forward.hf import ModuleForward
from decoder.forward.traits import Traits, longest_text

__all__ = ["ExactModule", "ModuleForward", "exact_lean", "has_room", "settings", "skeleton", "source_of", "traits_of"]


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

"""Which Hugging Face modules are of a fast family, told by what they are made of, and their weights by name."""

from typing import Any

from torch import Tensor, nn
from transformers.activations import ACT2FN

from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import DTYPES, FAMILIES, runs
from decoder.forward.families.weights import Source

PARTS = frozenset({nn.ModuleList, nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout})


def source_of(module: Any) -> Source | None:
    """A module's weights, wherever they are; None for a module that is not known through and through."""
    config, name = module.config, type(module).__name__
    if name not in (family.name for family in FAMILIES.values()) or not _plain(module):
        return None
    look = Architecture.of(config)
    if not runs(look) or (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)):
        return None
    weights: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return Source(look, weights, module.base_model.rotary_emb.inv_freq)


def _plain(module: Any) -> bool:
    """Whether all parts are as the family's own source makes them, in one dtype: no adapter, no quantised matrix."""
    weights = {(weight.device, weight.dtype) for weight in module.parameters()}
    activation = type(ACT2FN[module.config.hidden_act])
    return (
        len(weights) == 1
        and {dtype for _, dtype in weights} <= DTYPES
        and all(_known(part, type(module), activation) for part in module.modules())
    )


def _known(part: nn.Module, family: type, activation: type) -> bool:
    """Whether a part is one of these, without a hook."""
    known = type(part) in PARTS or type(part) is activation or type(part).__module__ == family.__module__
    return known and not part.training and not part._forward_hooks and not part._forward_pre_hooks  # noqa: SLF001 - only there

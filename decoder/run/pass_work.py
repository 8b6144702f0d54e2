"""Work of a model's forward pass, from its architecture, module or file; reads no weights. A pass reads every weight
once, except embeddings, of which it reads a row per token; an output head that shares them is read whole.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from decoder.analysis.roofline import PassWork
from decoder.forward.cache_bytes import cache_bytes
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import shapes
from decoder.models.gguf.file import GgufFile
from decoder.models.gguf.words import row_bytes
from decoder.models.memory import bits_per_number

_EXPERTS = re.compile(r"(^|\.)experts\.|_exps\.")
"""Names of weights of experts among which each row chooses, in modules and in GGUF files."""
_PER_TOKEN = ("num_experts_per_tok", "moe_topk", "moe_k", "moe_top_k", "top_k_experts")
_EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""Configuration fields with the experts per token, and of all experts; families use different ones."""


def work_of_architecture(arch: Architecture, dtype: torch.dtype) -> PassWork:
    count = sum(map(math.prod, shapes(arch).values()))
    if not arch.tie_word_embeddings:
        count -= arch.vocab_size * arch.hidden_size
    return PassWork(count * dtype.itemsize, count, _cached(arch, dtype))


def work_of_module(module: Any, dtype: torch.dtype, bits: int | None = None) -> PassWork | None:
    """None for experts of unknown number per token. A quantised module must be without weights; `bits` are of a
    quantised weight.
    """
    config, width = module.config.get_text_config(), bits_per_number(module, dtype, bits)
    weights = list(read_weights(module))
    chosen = _chosen_experts(config, has_experts=any(_EXPERTS.search(name) for name, _ in weights))
    if chosen is None:
        return None
    used = [(chosen if _EXPERTS.search(name) else 1.0, weight) for name, weight in weights]
    return PassWork(
        weights_bytes=int(sum(share * weight.numel() * width(weight) / 8 for share, weight in used)),
        weights=int(sum(share * weight.numel() for share, weight in used)),
        cached_bytes=_cached(config, dtype),
        sparse=chosen < 1,
    )


def work_of_gguf(file: GgufFile) -> PassWork | None:
    """Weights are read as they are stored."""
    head, embedding = "output.weight", "token_embd.weight"
    sizes = {name: size for name, size in file.tensors.items() if name != embedding or head not in file.tensors}
    experts = sum(size for name, size in sizes.items() if _EXPERTS.search(name))
    total, chosen = file.size("expert_count") or 0, file.size("expert_used_count") or 0
    if experts and not 0 < chosen <= total:
        return None
    idle = int(experts * (1 - chosen / total)) if experts else 0
    row = row_bytes(file) or 0
    return PassWork(sum(sizes.values()) - idle, cached_bytes=lambda text: row * text, sparse=bool(idle))


def read_weights(module: Any) -> Iterator[tuple[str, Tensor]]:
    """All but the tables of embeddings."""
    head = module.get_output_embeddings()
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    tables -= {id(head.weight)} if head is not None else set()
    yield from ((name, weight) for name, weight in module.named_parameters() if id(weight) not in tables)


def _chosen_experts(config: Any, *, has_experts: bool) -> float | None:
    """Share of the experts that a token uses: 1 without experts, None if unknown."""
    total, chosen = (
        next((value for name in names if isinstance(value := getattr(config, name, None), int) and value > 0), None)
        for names in (_EXPERT_COUNTS, _PER_TOKEN)
    )
    if not has_experts:
        return 1.0 if total in (None, 1) else None
    return chosen / total if total and chosen and chosen <= total else None


def _cached(config: Any, dtype: torch.dtype) -> Callable[[int], int]:
    """Length of a text -> bytes of keys and values that a pass reads; in layers with a window, only those in it."""
    return lambda text: cache_bytes(config, text, dtype.itemsize)[1]

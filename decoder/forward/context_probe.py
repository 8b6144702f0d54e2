"""Whether a model has room for a draft tree beside its longest text: tried by shapes alone, in no time and memory.

Some families hold a mask, or a kind for each token, that is as long as their longest text, and fail where a round's
rows go beyond it. To compute such a text would take minutes and gigabytes; on torch's meta device, where tensors have
shapes and no numbers, the same calls cost next to nothing whatever the context is. Knows no pairs and no trees.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from decoder.forward.hf import appending, unknown_cache

META = torch.device("meta")
FEW = 2
"""Rows that any model has room for."""


@torch.inference_mode()
def has_room(module: Any, text: int, rows: int) -> bool:
    """Whether a pass of so many rows runs after a text of so many tokens.

    Where not even a few rows run by shapes alone, because a family looks at its numbers to choose what it computes,
    nothing is known, and nothing is said against it.

    Args:
        module: A Hugging Face module.
        text: Tokens whose keys and values are in the cache.
        rows: Further rows, computed together.
    """
    return _runs(module, text, rows) or not _runs(module, FEW, FEW)


def _runs(module: Any, text: int, rows: int) -> bool:
    cache = unknown_cache(module.config.get_text_config().num_hidden_layers, text + rows)
    try:
        shapes = _without_numbers(module)
        # The first pass makes room in the cache.
        for start, count in ((0, 1), (text, rows)):
            cache.used = start
            shapes(
                input_ids=torch.zeros((1, count), dtype=torch.long, device=META),
                position_ids=torch.zeros((1, count), dtype=torch.long, device=META),
                attention_mask=torch.zeros((1, 1, count, start + count), dtype=torch.bfloat16, device=META),
                past_key_values=appending(cache),
                use_cache=True,
            )
    except Exception:  # noqa: BLE001 - each family fails in its own way where it has no room
        return False
    return True


def _without_numbers(module: Any) -> Any:
    """A copy with shapes for weights, because a forward pass may leave tensors behind in its module.

    All in bfloat16: the meta device knows some operators in no other dtype.
    """
    held = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, {place: _shape(tensor) for place, tensor in held.items()})


def _shape(tensor: Tensor) -> Tensor:
    real = tensor.is_floating_point()
    shape = torch.empty_like(tensor, device=META, dtype=torch.bfloat16 if real else None)
    return nn.Parameter(shape, requires_grad=False) if isinstance(tensor, nn.Parameter) else shape

"""KV cache contents in a form that tests compare."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoder.forward.families.native import NativeModel
from decoder.forward.kv_cache import KvCache, side_by_side


def committed(cache: KvCache) -> Tensor:
    """The committed rows of all layers as stored, shape (L, 2, H, P, D)."""
    return cache.store[..., : cache.length, :]


def keys_values(cache: KvCache, forward: Any) -> Tensor:
    """The committed rows in Hugging Face's order, with the halves of rotated pairs apart; shape as in `committed`."""
    rotated = forward.rotary.width if isinstance(forward, NativeModel) else 0
    keys, values = committed(cache).unbind(1)
    order = [*np.argsort(side_by_side(rotated)).tolist(), *range(rotated, keys.shape[-1])]
    return torch.stack((keys[..., order], values), 1)

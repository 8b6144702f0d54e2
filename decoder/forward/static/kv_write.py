"""How new keys and values get into a model's store, the one tensor of all its layers.

What compiles a pass must not look into this: it would see a new store come out of each layer, and copy the whole of it.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def write(
    store: Float[Tensor, "L 2 H S D"], layer: int, slots: Int[Tensor, "N"], rows: Float[Tensor, "2 H N D"]
) -> None:
    """Puts one layer's rows into these slots."""
    if torch.compiler.is_compiling():
        _write_unseen(store, layer, slots, rows)
    else:
        _write(store, layer, slots, rows)


def _write(store: Tensor, layer: int, slots: Tensor, rows: Tensor) -> None:
    store[layer].index_copy_(2, slots, rows.to(store.dtype))


_write_unseen = torch.library.custom_op("decoder::write", _write, mutates_args=("store",))

"""GPT-NeoX's lean layers for a compiler: nothing is overwritten, and rotations are real numbers.

By plain calls that is more work than `decoder.forward.families.neox`, which computes the same in place; a compiler
makes few kernels of it, but cannot read the other.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn import functional

from decoder.forward.families.attention import Pass, attend
from decoder.forward.families.model import LeanModel
from decoder.forward.families.neox import Parallel, Sequential

Activation = Callable[[Tensor], Tensor]


def for_a_compiler(model: LeanModel) -> LeanModel:
    """The same model of the same weights, in layers that a compiler can read."""
    return replace(
        model, layers=[Fused(layer) if isinstance(layer, Parallel | Sequential) else layer for layer in model.layers]
    )


@dataclass(frozen=True)
class Fused:
    """A layer, written as its formula."""

    layer: Parallel | Sequential

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        """See `decoder.forward.families.model.Layer`."""
        layer, columns = self.layer, 3 * self.layer.shape.attention
        product = layer.inward(layer.norm(rows))
        found = self._attended(product[:, :columns], given, index)
        if isinstance(layer, Parallel):
            return rows + layer.outward(torch.cat((found, self._activated(product[:, columns:])), 1))
        rows = rows + layer.outward(found)
        return rows + layer.down(self._activated(layer.up(layer.norm(rows))))

    def _activated(self, rows: Float[Tensor, "N Y"]) -> Float[Tensor, "N Y"]:
        return functional.gelu(rows, approximate=self.layer.shape.gelu)

    def _attended(self, product: Float[Tensor, "N Y"], given: Pass, index: int) -> Float[Tensor, "N Z"]:
        shape, count = self.layer.shape, len(product)
        keys, values, queries = product.view(count, 3, shape.heads, shape.head).permute(1, 2, 0, 3)
        given.new[index].copy_(torch.stack((turned(keys, given.rotation, shape.rotated), values)))
        found = attend(turned(queries, given.rotation, shape.rotated), given, index)
        return found.transpose(0, 1).reshape(count, -1).to(product.dtype)


def turned(heads: Float[Tensor, "H N D"], rotation: Complex[Tensor, "N 1 1 R"], width: int) -> Float[Tensor, "H N D"]:
    """Heads whose first `width` dimensions, pairs side by side, are rotated."""
    cosine, sine = torch.view_as_real(rotation[:, 0, 0]).unbind(-1)
    left, right = heads[..., :width].unflatten(-1, (-1, 2)).unbind(-1)
    pairs = torch.stack((left * cosine - right * sine, left * sine + right * cosine), -1)
    return torch.cat((pairs.flatten(-2).to(heads.dtype), heads[..., width:]), -1)

"""The native layers for a compiler: nothing is overwritten, and rotations are real numbers.

By plain calls that is more work than `decoder.forward.families.layers`, which computes the same in place; a compiler
makes few kernels of it, but cannot read the other.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from decoder.forward.families.attention import Pass, attend
from decoder.forward.families.layers import Parallel, Sequential
from decoder.forward.families.model import NativeModel


def for_a_compiler(model: NativeModel) -> NativeModel:
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
        layer, activated = self.layer, self.layer.activation.formula
        product = layer.inward(layer.norm(rows))
        if isinstance(layer, Parallel):
            found = self._attended(product[:, layer.inner :], given, index)
            return rows + layer.outward(torch.cat((activated(product[:, : layer.inner]), found), 1))
        rows = rows + layer.outward(self._attended(product, given, index))
        return rows + layer.down(activated(layer.up(layer.norm(rows))))

    def _attended(self, product: Float[Tensor, "N Y"], given: Pass, index: int) -> Float[Tensor, "N Z"]:
        heads, count = self.layer.heads, len(product)
        kept, asking = heads.heads, heads.heads * heads.groups
        queries, keys, values = product.view(count, -1, heads.width).transpose(0, 1).split((asking, kept, kept))
        given.new[index].copy_(torch.stack((turned(keys, given.rotation, heads.rotated), values)))
        queries = turned(queries, given.rotation, heads.rotated).reshape(kept, -1, heads.width)
        found = attend(queries, given, index).view(asking, count, heads.width)
        return found.transpose(0, 1).reshape(count, -1).to(product.dtype)


def turned(heads: Float[Tensor, "H N D"], rotation: Complex[Tensor, "N 1 1 R"], width: int) -> Float[Tensor, "H N D"]:
    """Heads whose first `width` dimensions, pairs side by side, are rotated."""
    cosine, sine = torch.view_as_real(rotation[:, 0, 0]).unbind(-1)
    left, right = heads[..., :width].unflatten(-1, (-1, 2)).unbind(-1)
    pairs = torch.stack((left * cosine - right * sine, left * sine + right * cosine), -1)
    return torch.cat((pairs.flatten(-2).to(heads.dtype), heads[..., width:]), -1)

"""Parts of drafting heads in plain torch, on any device: norm, rotary positions, gated MLP, map of token ids.

Pure functions of rows and weights; they know neither checkpoints nor caches.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

NEVER = -1e4
"""Logit of tokens that a head cannot predict: their probability is 0, but recorded log-probabilities stay finite."""


def rms_normed(rows: Float[Tensor, "*N X"], weight: Float[Tensor, "X"], eps: float) -> Float[Tensor, "*N X"]:
    """Rows divided by their root mean square and scaled by `weight`; the mean is computed in float32 or wider."""
    wide = rows.float() if rows.dtype.itemsize < torch.float32.itemsize else rows
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return scaled.to(rows.dtype) * weight


def rotated(
    heads: Float[Tensor, "H N D"], positions: Sequence[int], frequencies: Float[Tensor, "R"]
) -> Float[Tensor, "H N D"]:
    """Heads rotated to these positions; see `turned`."""
    return turned(heads, *turns(torch.tensor(positions, device=heads.device), frequencies, heads.dtype))


def turns(
    positions: Int[Tensor, "N"], frequencies: Float[Tensor, "R"], dtype: torch.dtype
) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
    """Cosines and sines of the angles by which heads at these positions are rotated; the angles are in float32."""
    angles = positions.float()[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def turned(
    heads: Float[Tensor, "H N D"], cosine: Float[Tensor, "N R"], sine: Float[Tensor, "N R"]
) -> Float[Tensor, "H N D"]:
    """Heads rotated by the angles of `turns`; dimension i of a head's first half and dimension i of its second half
    form a pair.
    """
    one, other = heads.chunk(2, -1)
    return torch.cat([one * cosine - other * sine, other * cosine + one * sine], -1)


def gated(
    rows: Float[Tensor, "N X"], gate: Float[Tensor, "I X"], up: Float[Tensor, "I X"], down: Float[Tensor, "X I"]
) -> Float[Tensor, "N X"]:
    """The SwiGLU MLP of Llama and Qwen3 layers."""
    return functional.linear(functional.silu(functional.linear(rows, gate)) * functional.linear(rows, up), down)


def over_target_ids(own: Float[Tensor, "N D"], tokens: Int[Tensor, "D"] | None, words: int) -> Float[Tensor, "N V"]:
    """Converts logits over a head's own token ids to logits over the target's `words` token ids.

    `tokens` has the target's token id for each of the head's own ids; None if head and target have the same ids.
    """
    if tokens is None:
        return own
    return own.new_full((len(own), words), NEVER).index_copy_(1, tokens, own)

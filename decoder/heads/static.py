"""Passes of fixed shape by an EAGLE-3 head. Knows nothing of texts or trees."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from decoder.forward.static.layers import write
from decoder.heads.eagle3 import Head, HeadShape
from decoder.heads.parts import Rotation
from decoder.heads.protocol import StatesReader

UNTAPPED = "a drafting head reads layer inputs, which only native models store in CUDA graphs"
"""Reason why rounds with a target that runs as a Hugging Face module are not captured as CUDA graphs."""


@dataclass(frozen=True)
class StaticHead:
    """An EAGLE-3 head whose passes write their keys and values to given slots of a store."""

    head: Head

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """See `StaticForward`."""
        return self.head.new_cache(capacity).store

    def rotation(self, positions: Int[Tensor, "N"]) -> Float[Tensor, "2 N R"]:
        """Rotations to these positions, to pass to `outputs`."""
        return torch.stack(self.head.rotation(positions))

    def outputs(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        hidden: Float[Tensor, "N X"],
        rotation: Float[Tensor, "2 N R"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N X"]:
        """Outputs of N rows, whose keys and values go to `slots`; `bias` is added to the scores of the first M slots.

        `tokens` and `hidden` are those of `GuidedHead.forward`.
        """

        def attend(number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            write(store, number, slots, torch.stack((keys, values)))
            # Each group of query heads is one batch, which reads its shared keys from the store without a copy.
            asking = queries.unflatten(0, (len(keys), -1))
            shared = (len(keys), asking.shape[1], -1, -1)
            seen = store[number, :, :, None, : bias.shape[1]]
            return functional.scaled_dot_product_attention(
                asking, seen[0].expand(shared), seen[1].expand(shared), bias
            ).flatten(0, 1)

        return self.head.through(tokens, hidden, Rotation(rotation[0], rotation[1]), attend)


def static_head(head: StatesReader | None) -> StaticHead | None:
    """The static form of a head; None if there is no head, or if the head has no static form."""
    return StaticHead(head) if isinstance(head, Head) and has_static_form(head.shape) else None


def only_on_host(head: StatesReader | None) -> bool:
    """Whether there is a head without a static form."""
    return head is not None and static_head(head) is None


def has_static_form(shape: object) -> bool:
    """Whether heads with this configuration have a static form."""
    return isinstance(shape, HeadShape) and not shape.parallel

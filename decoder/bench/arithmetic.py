"""How much arithmetic forward passes are: what the time of a longer text is held against.

Counts what a model's shape asks for, whoever computes it and however: rows that are only padding and keys that are read
twice are a machine's own affair. Knows no clock.
"""

from typing import Any

import msgspec
from torch import nn


class Work(msgspec.Struct, frozen=True):
    """What some forward passes of one model had to do."""

    calls: int = 0
    rows: int = 0
    looks: int = 0
    """Keys that a row attends to, of all rows together."""
    scored: int = 0
    """Rows whose logits were asked for."""

    def since(self, before: "Work") -> "Work":
        """What was added to `before`."""
        earlier = msgspec.structs.astuple(before)
        return Work(*(now - then for now, then in zip(msgspec.structs.astuple(self), earlier, strict=True)))


class Shape(msgspec.Struct, frozen=True):
    """The multiply-adds of a model, by what it has to do."""

    matrices: int
    """A row: each weight of each matrix but the head's. Of a mixture of experts, all of them."""
    head: int
    """A row whose logits are asked for."""
    attention: int
    """A row and a key: its score and its share of the sum, in all heads of all layers."""

    def multiply_adds(self, work: Work) -> int:
        """Of this work."""
        return work.rows * self.matrices + work.scored * self.head + work.looks * self.attention


class Arithmetic(msgspec.Struct, frozen=True):
    """Both models' shapes."""

    target: Shape
    draft: Shape

    def multiply_adds(self, target: Work, draft: Work) -> int:
        """Of what the target and the draft had to do."""
        return self.target.multiply_adds(target) + self.draft.multiply_adds(draft)


def shape(module: Any) -> Shape:
    """The shape of a Hugging Face module."""
    config = module.config.get_text_config()
    head = module.get_output_embeddings().weight
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    inner = [weight for weight in module.parameters() if id(weight) not in tables and weight is not head]
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Shape(
        matrices=sum(weight.numel() for weight in inner if weight.dim() > 1),
        head=head.numel(),
        attention=2 * config.num_hidden_layers * config.num_attention_heads * width,
    )

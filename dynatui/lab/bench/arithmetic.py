"""Multiply-adds of forward passes. Benchmarks compare how multiply-adds and round times grow with the text length.

This module counts the work that a model's shape requires, not the work of an implementation: padding rows do not count,
and a key that a row reads twice counts once. It measures no time.
"""

from typing import Any

import msgspec
from torch import nn


class Work(msgspec.Struct, frozen=True):
    """Work of some forward passes of one model."""

    calls: int = 0
    rows: int = 0
    looks: int = 0
    """Number of attended keys, summed over rows."""
    scored: int = 0
    """Number of rows whose logits were computed."""

    def since(self, before: "Work") -> "Work":
        earlier = msgspec.structs.astuple(before)
        return Work(*(now - then for now, then in zip(msgspec.structs.astuple(self), earlier, strict=True)))


class Shape(msgspec.Struct, frozen=True):
    """Multiply-adds of one model for each kind of work."""

    matrices: int
    """Of one row in all weight matrices except the head; in a mixture of experts, all experts count."""
    head: int
    """Of one row of logits."""
    attention: int
    """Of one row and one key in all layers and heads: score and weighted sum."""

    def multiply_adds(self, work: Work) -> int:
        return work.rows * self.matrices + work.scored * self.head + work.looks * self.attention


class Arithmetic(msgspec.Struct, frozen=True):
    """Multiply-adds of target and draft for each kind of work."""

    target: Shape
    draft: Shape

    def multiply_adds(self, target: Work, draft: Work) -> int:
        return self.target.multiply_adds(target) + self.draft.multiply_adds(draft)


def shape(module: Any) -> Shape:
    """Multiply-adds of a Hugging Face model for each kind of work, from the shapes of its weights."""
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

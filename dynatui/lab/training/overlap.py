"""Training loss that falls as the draft's and the target's distributions overlap more. The overlap is the probability
that a sampled guess is accepted.

The gradient of the overlap alone vanishes where the distributions hardly overlap, so the KL divergence is added with a
weight that falls as the overlap rises. Knows only the texts and models that a loss is called with.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from dynatui.lab.training.loop import Loss

DIVERGENCE_DECAY = 3.0
"""The weight of the KL divergence is exp(-DIVERGENCE_DECAY * mean overlap)."""


def overlap_loss(
    draft_logits: Float[Tensor, "*N V"], target_logits: Float[Tensor, "*N V"], temperature: float
) -> Float[Tensor, ""]:
    """1 - mean overlap + weighted mean KL divergence in nats; both distributions are computed at `temperature`."""
    target_logprobs = (target_logits.float() / temperature).log_softmax(-1)
    draft_logprobs = (draft_logits.float() / temperature).log_softmax(-1)
    overlap = torch.minimum(target_logprobs, draft_logprobs).exp().sum(-1).mean()
    divergence = functional.kl_div(
        draft_logprobs.flatten(0, -2), target_logprobs.flatten(0, -2), reduction="batchmean", log_target=True
    )
    return 1 - overlap + torch.exp(-DIVERGENCE_DECAY * overlap.detach()) * divergence


def draft_loss(target: Any, temperature: float) -> Loss:
    """Loss function of a draft model: the overlap loss on texts. It takes token ids of shape (rows, window + 1)."""

    def loss(draft: Any, ids: Tensor) -> Tensor:
        with torch.no_grad():
            target_logits = target(ids[:, :-1]).logits
        return overlap_loss(draft(ids[:, :-1]).logits, target_logits, temperature)

    return loss

"""What a selector goes by: what is known at the root before the first draw, as one row of numbers.

Nothing here depends on a draw of the tree that is chosen, so every verifier stays lossless (the paper, section 5). The
target has no row at the root yet: the last it says is what the root itself was chosen by.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.sampling.settings import Sampling

SCALARS = (
    "entropy of the target before the root",
    "entropy of the draft before the root",
    "entropy of the draft at the root",
    "KL divergence of the draft from the target before the root",
    "KL divergence of the target from the draft before the root",
    "L1 distance before the root",
    "logarithm of the text's length",
    "temperature",
    "top-p",
    "logarithm of a draft pass's seconds",
    "logarithm of a target pass's seconds",
)
TIMES = slice(len(SCALARS) - 2, len(SCALARS))
"""Those that the machine decides, not the text."""
LOOKED_BACK = 2
"""Tokens that the draft reads at a root."""
LEAST = 1e-10
"""Under a logarithm; top-p leaves zeros."""


@dataclass(frozen=True)
class Root:
    """What models say before and at the last token of a text, after temperature and truncation."""

    target_before: Float[Tensor, "V"]
    """What the last token was chosen by."""
    draft_before: Float[Tensor, "V"]
    draft_at: Float[Tensor, "V"]
    hidden: tuple[Float[Tensor, "X"], ...]
    """Of the target before, of the draft before and at the last token; empty where models do not show them."""
    length: int
    """Of the text, in tokens."""
    sampling: Sampling


def scalars(root: Root, draft_s: float, target_s: float) -> Float[Tensor, "F"]:
    """The numbers that `SCALARS` names, in float32 on the host, in nats and seconds."""
    rows = torch.stack([root.target_before, root.draft_before, root.draft_at]).float()
    logs = rows.clamp_min(LEAST).log()
    # All that touches the vocabulary in a few calls, and one copy to the host.
    entropies = -(rows * logs).sum(-1)
    difference = rows[0] - rows[1]
    divergences = rows[:2] @ (logs[0] - logs[1])
    told = torch.cat([entropies, divergences, difference.abs().sum()[None]]).tolist()
    *entropies_of, forward, backward, distance = told
    by_text = [*entropies_of, forward, -backward, distance, math.log(root.length)]
    by_settings = [root.sampling.temperature, root.sampling.top_p]
    return torch.tensor([*by_text, *by_settings, *times(draft_s, target_s)])


def times(draft_s: float, target_s: float) -> list[float]:
    """The last scalars, for passes of one row that take so long."""
    return [math.log(max(draft_s, LEAST)), math.log(max(target_s, LEAST))]

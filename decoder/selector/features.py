"""Features of a selector: the models' distributions at the root, as one row of numbers.

No feature depends on a token of the chosen tree, so every verifier stays lossless (the paper, section 5). The target's
distribution after the root is not known yet. The target's latest known distribution is the distribution from which the
root was sampled.
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
    "logarithm of the seconds of a draft pass",
    "logarithm of the seconds of a target pass",
)
TIMES = slice(len(SCALARS) - 2, len(SCALARS))
"""They depend on the machine, not on the text."""
LOOKED_BACK = 2
"""Tokens that the draft reads at a root."""
LEAST = 1e-10
"""Least argument of a logarithm, since top-p sets probabilities to 0."""


@dataclass(frozen=True)
class Root:
    """Distributions around the last token of a text, with temperature and truncation applied."""

    target_before: Float[Tensor, "V"]
    """Of the last token."""
    draft_before: Float[Tensor, "V"]
    """Of the last token."""
    draft_at: Float[Tensor, "V"]
    """Of the next token."""
    hidden: tuple[Float[Tensor, "X"], ...]
    """From which the three distributions were computed, in order; empty if the models do not expose hidden rows."""
    length: int
    """In tokens."""
    sampling: Sampling


def scalars(root: Root, draft_s: float, target_s: float) -> Float[Tensor, "F"]:
    """In float32 on the host; entropies in nats, times in seconds."""
    rows = torch.stack([root.target_before, root.draft_before, root.draft_at]).float()
    logs = rows.clamp_min(LEAST).log()
    # For speed, few operators are called on rows of vocabulary size, and the results are copied to the host once.
    entropies = -(rows * logs).sum(-1)
    difference = rows[0] - rows[1]
    divergences = rows[:2] @ (logs[0] - logs[1])
    sums = torch.cat([entropies, divergences, difference.abs().sum()[None]])
    *entropy_values, forward, backward, distance = sums.tolist()
    by_text = [*entropy_values, forward, -backward, distance, math.log(root.length)]
    by_settings = [root.sampling.temperature, root.sampling.top_p]
    return torch.tensor([*by_text, *by_settings, *times(draft_s, target_s)])


def times(draft_s: float, target_s: float) -> list[float]:
    return [math.log(max(draft_s, LEAST)), math.log(max(target_s, LEAST))]

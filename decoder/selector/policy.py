"""The network that scores actions at a root, and the objective that it is trained for (the paper, appendix E).

Knows neither models nor files. Hidden rows are brought to mean square 1 before they are projected, since their lengths
differ by orders of magnitude between families.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from decoder.selector.actions import ACTIONS
from decoder.selector.features import SCALARS

PROJECTED, WIDE, NARROW = 128, 512, 32
FARTHEST = 4.0
"""Scaled scalars are cut here: a machine or a setting that was not seen must not upset the rest."""
EPSILON = 1e-6
BEGINNING = 0.1
"""Of the usual weights of the last layer."""


class Policy(nn.Module):
    """Scores of all actions, from hidden rows and scalars."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, hidden_widths: Sequence[int], dropout: float = 0.0) -> None:
        """Takes the widths of the hidden rows, which may be none."""
        super().__init__()
        self.hidden_widths = tuple(hidden_widths)
        self.register_buffer("mean", torch.zeros(len(SCALARS)))
        self.register_buffer("deviation", torch.ones(len(SCALARS)))
        self.projections = nn.ModuleList(
            nn.Sequential(nn.Linear(width, PROJECTED), nn.LayerNorm(PROJECTED)) for width in self.hidden_widths
        )
        self.layers: Any = nn.Sequential(
            nn.Linear(len(self.hidden_widths) * PROJECTED + len(SCALARS), WIDE),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(WIDE, NARROW),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(NARROW, len(ACTIONS)),
        )

    def scale_by(self, scalars: Float[Tensor, "R F"]) -> None:
        """Standardises by these roots; what does not vary among them is left out."""
        deviation, mean = torch.std_mean(scalars, 0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > EPSILON, deviation, math.inf))

    def begin_with(self, scores: Float[Tensor, "A"]) -> None:
        """Lets it score all roots about so, before it has learnt how they differ."""
        last = self.layers[-1]
        with torch.no_grad():
            last.weight.mul_(BEGINNING)
            last.bias.copy_(scores)

    def forward(self, hidden: Sequence[Float[Tensor, "R X"]], scalars: Float[Tensor, "R F"]) -> Float[Tensor, "R A"]:
        """Scores before softmax."""
        scaled = ((scalars - self.mean) / self.deviation).clamp(-FARTHEST, FARTHEST)
        rows = [
            project(functional.rms_norm(row, row.shape[-1:], eps=EPSILON))
            for project, row in zip(self.projections, hidden, strict=True)
        ]
        scores: Tensor = self.layers(torch.cat([*rows, scaled], -1))
        return scores


def throughput(
    scores: Float[Tensor, "R A"], tokens: Float[Tensor, "R A"], seconds: Float[Tensor, "R A"]
) -> Float[Tensor, "R"]:
    """Tokens a second of a round that is drawn by the policy: a ratio of sums (the paper, equation 4)."""
    probabilities = scores.softmax(-1)
    return (probabilities * tokens).sum(-1) / (probabilities * seconds).sum(-1)


def loss(
    rates: Float[Tensor, "R"], base_rates: Float[Tensor, "R"], regret_weight: float, worst_share: float
) -> Float[Tensor, ""]:
    """How far a policy stays behind a base (the paper, equation 12).

    Args:
        rates: Of the policy, in tokens a second.
        base_rates: Of the best action for all roots of the same sampling settings.
        regret_weight: Lambda: of being slower than the base.
        worst_share: Alpha: the share of roots, the worst, that this is taken of.
    """
    ratios = rates / base_rates
    regrets = (1 - ratios).clamp_min(0).square()
    worst = regrets.topk(math.ceil(worst_share * len(regrets))).values
    return -ratios.log().mean() + regret_weight * worst.mean()


def best_static(
    tokens: Float[Tensor, "R A"], seconds: Float[Tensor, "R A"], possible: Bool[Tensor, "A"] | None = None
) -> Int[Tensor, ""]:
    """The one action that brings most tokens a second over all these roots."""
    rates = tokens.sum(0) / seconds.sum(0)
    return (rates if possible is None else rates.masked_fill(~possible, -math.inf)).argmax()

"""A trained policy, in a form for one root at a time: the same scores with a third of the operator calls.

The round waits for the scores, and with a single root, calling an operator takes longer than its arithmetic. So
adjacent affine steps are fused. This module knows neither models nor files.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from decoder.selector.policy import EPSILON, FARTHEST, PROJECTED, Policy


class OneRoot:
    def __init__(self, policy: Policy) -> None:
        self.hidden_widths = policy.hidden_widths
        first, middle, last = (policy.layers[place] for place in (0, 3, 6))
        self._mean, self._over = policy.mean, 1 / policy.deviation
        projections: list[Any] = list(policy.projections)
        self._projections = [(linear.weight.data, linear.bias.data) for linear, _ in projections]
        wide, bias, self._norm = first.weight.data.clone(), first.bias.data.clone(), (PROJECTED,)
        for number, (_, norm) in enumerate(projections):
            block = wide[:, number * PROJECTED : (number + 1) * PROJECTED]
            bias += block @ norm.bias.data
            block *= norm.weight.data
        self._wide = wide, bias
        self._later_layers = [(layer.weight.data, layer.bias.data) for layer in (middle, last)]

    @torch.inference_mode()
    def __call__(self, hidden: Sequence[Float[Tensor, "X"]], scalars: Float[Tensor, "F"]) -> Float[Tensor, "A"]:
        """Before softmax; see `Policy.forward`."""
        parts = []
        for row, (weight, bias) in zip(hidden, self._projections, strict=True):
            scale = (row.dot(row) / len(row) + EPSILON).rsqrt()
            parts.append(functional.layer_norm(torch.addmv(bias, weight, row * scale), self._norm))
        parts.append(((scalars - self._mean) * self._over).clamp_(-FARTHEST, FARTHEST))
        weight, bias = self._wide
        scores = torch.addmv(bias, weight, torch.cat(parts))
        for weight, bias in self._later_layers:
            scores = torch.addmv(bias, weight, functional.gelu(scores))
        return scores

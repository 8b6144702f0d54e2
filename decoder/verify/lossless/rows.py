"""Arithmetic on rows of probabilities, guarded against rounding. Knows neither trees nor random numbers."""

import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from decoder.errors import ModelError

Row: TypeAlias = Float[NDArray[np.float64], "V"]
"""Probabilities of the tokens after one node, or weights in proportion to them."""
Rows: TypeAlias = Float[NDArray[np.float64], "N V"]
"""One row for each node of a tree; the draft's is zeros after nodes without draws."""
NEGLIGIBLE = 1e-30
"""Least probability above 0: the inverse of a lower one, a factor of the residual, overflows float32."""


def positive(row: Row) -> Row:
    """Positive part of a row."""
    return np.maximum(row, 0.0)


def normalised(weights: Row, fallback: Row) -> Row:
    """Distribution in proportion to `weights`; `fallback` if all weights are 0."""
    total = weights.sum()
    return weights / total if total > 0 else fallback


def residual(target_probs: Row, draft_probs: Row, removed: float = 1.0) -> Row:
    """Residual distribution, in proportion to (p - removed q)+; p if that is 0 everywhere."""
    return normalised(positive(target_probs - removed * draft_probs), target_probs)


def ratio(over: float, under: float) -> float:
    """min(1, over / under); with `under` 0, which no drawn token has, 1 if `over` is positive and else 0."""
    if under <= 0:
        return float(over > 0)
    return _probability(float(over) / float(under))


def share(part: float, rest: float) -> float:
    """The quotient part / (part + rest) in [0, 1]; 1 where both are 0, which only unreachable nodes have."""
    whole = part + rest
    return _probability(float(part) / float(whole)) if whole > 0 else 1.0


def _probability(value: float) -> float:
    return min(1.0, value) if value >= NEGLIGIBLE else 0.0


def require_numbers(total: float) -> None:
    """Refuses NaN and infinity, which comparisons would not notice; the sum of many numbers checks all of them.

    Raises:
        ModelError: `total` is NaN or infinite.
    """
    if not math.isfinite(total):
        raise ModelError(
            "a probability is no finite number; a model's logits hold NaN or infinity; try --dtype float32, or check "
            "the model's weights"
        )

"""Arithmetic on rows of probabilities, guarded against rounding. This module knows neither trees nor random numbers."""

import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from decoder.errors import ModelError

Row: TypeAlias = Float[np.ndarray, "V"]
"""Probabilities of all tokens after one node, or unnormalised weights; shape (V,)."""
Rows: TypeAlias = Float[np.ndarray, "N V"]
"""One row for each node of a tree, shape (N, V); the draft's rows are zeros for nodes after which no token was sampled.
"""
NEGLIGIBLE = 1e-30
"""Smaller probabilities are rounded to 0, since the residual needs the inverse of probabilities, and the inverse of a
smaller probability may overflow float32.
"""


def positive(row: Row) -> Row:
    """Positive part of a row: negative entries become 0."""
    positives: Row = np.maximum(row, 0.0)
    return positives


def normalised(weights: Row, fallback: Row) -> Row:
    """`weights` normalised to sum 1; `fallback` if all weights are 0."""
    total = weights.sum()
    shares: Row = weights / total if total > 0 else fallback
    return shares


def residual(target_probs: Row, draft_probs: Row, removed: float = 1.0) -> Row:
    """Residual distribution: (p - removed q)+ normalised; p if (p - removed q)+ is 0 everywhere."""
    return normalised(positive(target_probs - removed * draft_probs), target_probs)


def ratio(over: float, under: float) -> float:
    """Acceptance probability min(1, over / under). If `under` is 0, the result is 1 for positive `over` and 0
    otherwise.
    """
    if under <= 0:
        return float(over > 0)
    return _probability(float(over) / float(under))


def share(part: float, rest: float) -> float:
    """The quotient part / (part + rest), in [0, 1]; 1 if both numbers are 0, as they are at unreachable nodes."""
    whole = part + rest
    return _probability(float(part) / float(whole)) if whole > 0 else 1.0


def _probability(value: float) -> float:
    return min(1.0, value) if value >= NEGLIGIBLE else 0.0


def require_numbers(total: float) -> None:
    """Refuses NaN and infinity, which comparisons do not detect. If `total` is the sum of many numbers, all these
    numbers are checked at once.

    Raises:
        ModelError: `total` is NaN or infinite.
    """
    if not math.isfinite(total):
        raise ModelError(
            "a probability is not finite, since a model's logits contain NaN or infinity; try --dtype float32, or "
            "check the model's weights"
        )

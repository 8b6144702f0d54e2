"""Arithmetic on rows of probabilities, guarded against rounding. Independent of trees and random numbers."""

import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from decoder.errors import ModelError

Row: TypeAlias = Float[np.ndarray, "V"]
"""Probabilities of all tokens after one node, or unnormalised weights."""
Rows: TypeAlias = Float[np.ndarray, "N V"]
"""One row for each node of a tree; the draft's row is zero at nodes after which no token was sampled."""
NEGLIGIBLE = 1e-30
"""Smaller probabilities are rounded to 0: the residual needs their inverse, which may overflow float32."""


def positive(row: Row) -> Row:
    positives: Row = np.maximum(row, 0.0)
    return positives


def normalised(weights: Row, fallback: Row) -> Row:
    total = weights.sum()
    shares: Row = weights / total if total > 0 else fallback
    return shares


def residual(target_probs: Row, draft_probs: Row, removed: float = 1.0) -> Row:
    """Normalised (p - removed q)+; p if (p - removed q)+ is 0 everywhere."""
    return normalised(positive(target_probs - removed * draft_probs), target_probs)


def ratio(over: float, under: float) -> float:
    """The quotient min(1, over / under). If `under` is 0: 1 for positive `over`, else 0."""
    if under <= 0:
        return float(over > 0)
    return _probability(float(over) / float(under))


def share(part: float, rest: float) -> float:
    """The quotient part / (part + rest), in [0, 1]; 1 if both are 0, as at unreachable nodes."""
    whole = part + rest
    return _probability(float(part) / float(whole)) if whole > 0 else 1.0


def _probability(value: float) -> float:
    return min(1.0, value) if value >= NEGLIGIBLE else 0.0


def require_numbers(total: float) -> None:
    """Raises ModelError for NaN and infinity, which comparisons do not detect; a sum checks all its terms at once."""
    if not math.isfinite(total):
        raise ModelError(
            "a probability is not finite, since a model's logits contain NaN or infinity; try --dtype float32, or "
            "check the model's weights"
        )

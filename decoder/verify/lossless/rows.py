"""Arithmetic on rows of probabilities, with the guards that rounding asks for. Knows neither trees nor coins."""

import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from decoder.errors import ModelError

Row: TypeAlias = Float[NDArray[np.float64], "V"]
"""Probabilities of the tokens after one node, or weights in proportion to them."""
Rows: TypeAlias = Float[NDArray[np.float64], "N V"]
"""One row a node of a tree; the draft's is zeros where nothing was drawn."""
NEGLIGIBLE = 1e-30
"""A probability below is 0: a float32 could not hold its inverse, which takes the draft out of the target."""


def positive(row: Row) -> Row:
    """Its positive part."""
    return np.maximum(row, 0.0)


def normalised(weights: Row, fallback: Row) -> Row:
    """The distribution in proportion to `weights`; `fallback` where rounding left none of them."""
    total = weights.sum()
    return weights / total if total > 0 else fallback


def residual(target_probs: Row, draft_probs: Row, removed: float = 1.0) -> Row:
    """What the target still asks for: the distribution in proportion to (p - removed q)+, or p if nothing is left."""
    return normalised(positive(target_probs - removed * draft_probs), target_probs)


def ratio(over: float, under: float) -> float:
    """min(1, over / under); by a zero below, which no token that was drawn has, 1 or 0 as anything stands above."""
    if under <= 0:
        return float(over > 0)
    return _probability(float(over) / float(under))


def share(part: float, rest: float) -> float:
    """The quotient part / (part + rest) in [0, 1]; 1 where both are 0, at places that are never reached."""
    whole = part + rest
    return _probability(float(part) / float(whole)) if whole > 0 else 1.0


def _probability(value: float) -> float:
    return min(1.0, value) if value >= NEGLIGIBLE else 0.0


def require_numbers(total: float) -> None:
    """Refuses NaN and infinity, which would pass comparisons in silence; one sum speaks for all that it sums.

    Raises:
        ModelError: It is no finite number.
    """
    if not math.isfinite(total):
        raise ModelError(
            "a probability is no finite number; a model's logits hold NaN or infinity; try --dtype float32, or check "
            "the model's weights"
        )

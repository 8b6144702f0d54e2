"""One observation changes the sharpness and the weight of undrafted tokens by a Newton step; guesses count by rank."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from decoder.draft.tree_size.acceptance_model import DECAY, PRIOR_COUNT, SHARPNESS, SURENESS, USUAL, AcceptanceModel

LOGPROBS = (-0.4, -1.6, -2.3)
UNDRAFTED = -1.0
"""Initial log-weight of the undrafted tokens, so large that it and the sharpness are correlated."""
STEP = 1e-4
"""Step of finite differences."""


def log_share(at: NDArray[np.float64], chosen: int | None) -> float:
    """Log-likelihood of the target's choice; `at` contains the sharpness and the log-weight of undrafted tokens."""
    acceptance = AcceptanceModel()
    acceptance.sharpness, acceptance.undrafted = at.tolist()
    return math.log(acceptance.shares(LOGPROBS)[-1 if chosen is None else chosen])


def gradient(value: Callable[[NDArray[np.float64]], float], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gradient by central differences."""
    return np.array([(value(at + way) - value(at - way)) / (2 * STEP) for way in STEP * np.eye(2)])


def newton_step(chosen: int | None) -> NDArray[np.float64]:
    """Newton step from the initial values, with the precision of the prior plus that of the observation."""
    start = np.array([SHARPNESS, UNDRAFTED])

    def slope(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return gradient(lambda place: log_share(place, chosen), at)

    curvature = np.array([(slope(start + way) - slope(start - way)) / (2 * STEP) for way in STEP * np.eye(2)])
    step: NDArray[np.float64] = np.linalg.solve(np.diag(SURENESS) - curvature, slope(start))
    return step


@pytest.mark.parametrize("chosen", [0, 1, 2, None])
def test_one_choice_moves_both_numbers_by_a_newton_step(chosen: int | None) -> None:
    acceptance = AcceptanceModel()
    acceptance.undrafted = UNDRAFTED
    acceptance.learn(LOGPROBS, acceptance.shares(LOGPROBS), chosen)
    moved = (acceptance.sharpness - SHARPNESS, acceptance.undrafted - UNDRAFTED)
    assert moved == pytest.approx(newton_step(chosen), rel=1e-3)


@pytest.mark.parametrize(
    ("shares", "count", "second"),
    [
        pytest.param((0.7, 0.2, 0.1), 1, 0.0, id="an only child"),
        pytest.param((0.7, 0.2, 0.1), 2, 0.2, id="the first of two"),
        pytest.param((0.7, 0.3), 1, 0.0, id="the one token that is known, with all others"),
    ],
)
def test_a_second_guess_counts_where_it_became_a_node(shares: Sequence[float], count: int, second: float) -> None:
    acceptance = AcceptanceModel()
    acceptance.see(shares, count)
    weight = DECAY * PRIOR_COUNT + 1
    before = DECAY * PRIOR_COUNT
    expected = ((before * USUAL[0] + shares[0]) / weight, (before * USUAL[1] + second) / weight)
    assert acceptance.usual == pytest.approx(expected)

"""Time of a round by the size of its tree, estimated from recorded rounds of one method:

    seconds = fixed_s + level_s * levels + row_s * drafted

The costs are medians, so a few stalled rounds have little effect; only `row_s` is the slope of a regression if the time
of a plain pass is unknown. A chain that ended because of `p_min` took one more draft pass than it has levels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from decoder.analysis.interval import resampled
from decoder.analysis.metrics import drafted_nodes
from decoder.events import Round
from decoder.methods.linear import P_MIN
from decoder.tree import depths

LEAST_ROUNDS = 5

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class RoundCosts:
    fixed_s: float
    """Time that does not depend on the tree: verification of one row, commit, and the rest of the round."""
    level_s: float
    row_s: float
    draws: Floats = field(compare=False, repr=False)
    """The three costs in each bootstrap sample of the rounds, shape (3, draws)."""

    def seconds(self, levels: float, drafted: float) -> float:
        return self.fixed_s + self.level_s * levels + self.row_s * drafted

    def drawn_seconds(self, levels: Floats, drafted: Floats) -> Floats:
        """Seconds of a round in each bootstrap sample, shape (draws,), by the mean sizes in each sample."""
        fixed_s, level_s, row_s = self.draws
        seconds: Floats = fixed_s + level_s * levels + row_s * drafted
        return seconds


def fitted(rounds: Sequence[Round], plain_pass_s: float | None) -> RoundCosts | None:
    """`plain_pass_s`: time of a verification of one row; None if unknown. Returns None if too few rounds have a tree
    and times, if all trees have the same size and `plain_pass_s` is unknown, or if `fixed_s` would not be positive.
    """
    timed = np.array(
        [
            (event.t - before.t, event.draft_s, event.verify_s, _levels(event), drafted_nodes(event) or 0)
            for before, event in pairwise(rounds)
            if event.draft_s is not None and event.verify_s is not None and event.t > before.t
        ],
        dtype=float,
    ).reshape(-1, 5)
    trees = timed[timed[:, 4] > 0]
    if len(trees) < LEAST_ROUNDS or (plain_pass_s is None and len(set(trees[:, 4])) < 2):
        return None
    fixed_s, level_s, row_s = (float(cost[0]) for cost in _costs(timed[None], trees[None], plain_pass_s))
    if fixed_s <= 0:
        return None
    random = np.random.default_rng(len(timed))
    every, drafting = (of[resampled(len(of), random)] for of in (timed, trees))
    return RoundCosts(fixed_s, level_s, row_s, _costs(every, drafting, plain_pass_s))


def _levels(event: Round) -> int:
    return max(depths(event.parents)) + (event.limited_by == P_MIN)


def _costs(every: Floats, trees: Floats, plain_pass_s: float | None) -> Floats:
    """Costs of shape (3, draws) from samples of shape (draws, rounds, 5): all rounds, and rounds with a tree."""
    _, draft_s, verify_s, levels, drafted = np.moveaxis(trees, -1, 0)
    level_s = np.median(draft_s / levels, axis=1)
    row_s = np.maximum(0.0, _row_s(drafted, verify_s, plain_pass_s))
    whole_s, _, _, depth, nodes = np.moveaxis(every, -1, 0)
    fixed_s = np.median(whole_s - level_s[:, None] * depth - row_s[:, None] * nodes, axis=1)
    return np.stack([fixed_s, level_s, row_s])


def _row_s(drafted: Floats, verify_s: Floats, plain_pass_s: float | None) -> Floats:
    """Cost of a row: from `plain_pass_s` if known, otherwise by linear regression of verification times on tree sizes.
    The regression gives 0 for a sample in which all trees have the same size.
    """
    if plain_pass_s is not None:
        by_row: Floats = np.median((verify_s - plain_pass_s) / drafted, axis=1)
        return by_row
    apart = drafted - drafted.mean(axis=1, keepdims=True)
    spread = (apart**2).sum(axis=1)
    slope: Floats = (apart * verify_s).sum(axis=1) / np.where(spread > 0, spread, np.inf)
    return slope
